package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
)

func storeCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "inspect the data directory of a stopped instance",
		Long: `store inspects the data directory of a stopped instance, or a copy that was made while
it ran, and changes nothing there. The directory is a view of the changelog: it can
always be deleted, which costs a replay at the next start.`,
	}
	cmd.AddCommand(storeVerifyCommand(p), storeDumpCommand(p))
	return cmd
}

// dataDir declares --data-dir, with the default that serve has.
func dataDir(p *process, cmd *cobra.Command) *string {
	return cmd.Flags().String("data-dir", cmp.Or(p.env(config.EnvOf("data-dir")), config.Default().DataDir),
		"the data `DIRECTORY` of serve")
}

func storeVerifyCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "check everything in the directory",
		Long: `verify reads every row and checks that they agree with each other. It prints one
line for each partition and exits 1 if one is damaged.`,
		Example: `  waterclock store verify --data-dir /var/lib/waterclock`,
	}
	dir := dataDir(p, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return commands.StoreVerify(cmd.Context(), *dir, p.stdout)
	}
	return cmd
}

func storeDumpCommand(p *process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "print everything in the directory as JSON",
		Long: `dump prints every row as a JSON object on a line of its own. It always prints timer
IDs; it prints values, headers and keys only with --payloads.`,
		Example: `  waterclock store dump --data-dir /var/lib/waterclock | grep '"row":"timer"'`,
	}
	dir := dataDir(p, cmd)
	payloads := cmd.Flags().Bool("payloads", false, "print values, headers and keys of emissions too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return commands.StoreDump(cmd.Context(), *dir, *payloads, p.stdout)
	}
	return cmd
}
