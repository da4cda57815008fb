package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
)

func storeCommand(p *process) *cobra.Command {
	return group("store", storeVerifyCommand(p), storeDumpCommand(p))
}

// dataDir declares --data-dir, with the default that serve has.
func dataDir(p *process, cmd *cobra.Command) *string {
	return cmd.Flags().String("data-dir", cmp.Or(p.env(config.EnvOf("data-dir")), config.Default().DataDir),
		"the data `DIRECTORY` of serve")
}

func storeVerifyCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{Use: "verify"}
	dir := dataDir(p, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return commands.StoreVerify(cmd.Context(), *dir, p.stdout)
	}
	return cmd
}

func storeDumpCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{Use: "dump"}
	dir := dataDir(p, cmd)
	payloads := cmd.Flags().Bool("payloads", false, "print values, headers and keys of emissions too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return commands.StoreDump(cmd.Context(), *dir, *payloads, p.stdout)
	}
	return cmd
}
