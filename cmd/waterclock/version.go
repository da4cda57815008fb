package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Long:  "version prints the module's version, the revision it was built from, and Go's version.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), thisVersion())
			return err
		},
	}
}

// thisVersion is the line of this program.
func thisVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionLine(info)
}

// versionLine is "waterclock v1.2.3 (revision 0123456789ab, modified), go1.26.0, linux/amd64".
func versionLine(info *debug.BuildInfo) string {
	version := info.Main.Version
	if version == "" {
		version = "(unknown version)"
	}
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	if rev := set["vcs.revision"]; rev != "" {
		version += " (revision " + rev[:min(len(rev), 12)]
		if set["vcs.modified"] == "true" {
			version += ", modified"
		}
		version += ")"
	}
	return fmt.Sprintf("waterclock %s, %s, %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
