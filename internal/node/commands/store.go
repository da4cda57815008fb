package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/waterclock/waterclock/internal/node/ops"
	"github.com/waterclock/waterclock/statestore"
)

// StoreVerify reads the whole store of a stopped instance, and prints a line for each partition. It returns an error if
// a partition is damaged. It changes nothing.
func StoreVerify(ctx context.Context, dataDir string, out io.Writer) (err error) {
	s, err := openStopped(dataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	topics, err := ops.ReadNames(dataDir)
	if err != nil {
		return err
	}
	t := table.NewWriter()
	t.SetOutputMirror(out)
	t.AppendHeader(table.Row{"partition", "position", "pending", "parked", "in sync", ""})
	bad := 0
	err = s.VerifyAll(ctx, func(id statestore.PartitionID, m statestore.Meta, err error) {
		verdict, inSync := "ok", "never"
		if err != nil {
			verdict = "DAMAGED"
			bad++
		}
		if !m.InSync.IsZero() {
			inSync = m.InSync.UTC().Format(time.RFC3339)
		}
		t.AppendRow(table.Row{topics.Partition(id), m.Position, m.Pending, m.Parked, inSync, verdict})
	})
	t.Render()
	if bad > 0 {
		return fmt.Errorf("%d partitions are damaged; the service replays them by itself when it meets the damage, "+
			"or delete the directory while it is stopped: %w", bad, err)
	}
	return err
}

// StoreDump prints the rows of the store of a stopped instance, each as a line of JSON. It prints users' payloads,
// headers and keys only if payloads is set. It changes nothing.
func StoreDump(ctx context.Context, dataDir string, payloads bool, out io.Writer) (err error) {
	s, err := openStopped(dataDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Dump(ctx, out, payloads)
}

func openStopped(dataDir string) (*statestore.Store, error) {
	s, err := statestore.OpenReadOnly(
		statestore.Options{Dir: ops.StoreDir(dataDir), Logger: slog.New(slog.DiscardHandler)})
	if errors.Is(err, statestore.ErrInUse) {
		return nil, fmt.Errorf("%w; stop that, or copy the directory and look into the copy", err)
	}
	if errors.Is(err, statestore.ErrForeignDirectory) {
		return nil, fmt.Errorf("there is no store in %s (%w): --data-dir names the directory that serve was given, "+
			"as in --data-dir /var/lib/waterclock", dataDir, err)
	}
	return s, err
}
