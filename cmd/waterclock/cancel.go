package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func cancelCommand(p *process) *cobra.Command {
	var id, topic string
	cmd := &cobra.Command{
		Use:   "cancel",
		Short: "cancel a timer",
		Long: `cancel writes one request that cancels the pending timer of an ID. If there is
none it does nothing, and says nothing of it either: the service decides when it
reads the request.`,
		Example: `  waterclock cancel --id a1`,
	}
	load := clientSettings(p, cmd, &topic)
	cmd.Flags().StringVar(&id, "id", "", "timer `ID`")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if id == "" || len(id) > maxID {
			return usagef("--id has %d bytes, needs 1 to %d", len(id), maxID)
		}
		cfg, err := load()
		if err != nil {
			return err
		}
		s, err := p.backend.cancel(cmd.Context(), cfg, topic, id)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "cancel of %s written to %s/%d/%d\n", id, s.Topic, s.Partition, s.Offset)
		return err
	}
	return cmd
}
