package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/node/ops"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Long:  "version prints the module's version, the revision it was built from, and Go's version.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), ops.ReadBuild())
			return err
		},
	}
}
