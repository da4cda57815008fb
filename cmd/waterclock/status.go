package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/waterclock/waterclock/internal/api"
)

func statusCommand(p *process) *cobra.Command {
	a := asking{p: p}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show instances and partitions",
		Long: `status asks the HTTP API of an instance for all instances, for the owner, the state and
the pending timers of each partition, for unhealthy targets, and for settings in which an
instance differs from most others. It exits 1 if a partition is not live, or if the
instance that was asked cannot work.`,
		Example: "  waterclock status",
	}
	a.flags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var s api.Cluster
		if err := a.get(cmd, "/v1/cluster", nil, &s); err != nil {
			return err
		}
		if !a.json {
			if p.profile != "" {
				fmt.Fprintf(p.stdout, "profile %s\n\n", p.profile)
			}
			if err := showCluster(p.stdout, &s); err != nil {
				return err
			}
		}
		for i := range s.Instances {
			if in := &s.Instances[i]; in.Name == s.Asked && in.Problem != "" {
				return fmt.Errorf("instance %s does not work: %s", in.Name, in.Problem)
			}
		}
		bad, unknown := 0, 0
		for i := range s.Partitions {
			switch s.Partitions[i].State {
			case "live":
			case "unknown":
				unknown++
			default:
				bad++
			}
		}
		switch {
		case bad > 0:
			return fmt.Errorf("%d of %d partitions are not live", bad, len(s.Partitions))
		case unknown > 0:
			return fmt.Errorf("of %d of %d partitions it is not known whether they are live: their owner could not be "+
				"asked", unknown, len(s.Partitions))
		}
		return nil
	}
	return cmd
}
