package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/internal/node/ops"
	"github.com/waterclock/waterclock/internal/node/policy"
	"github.com/waterclock/waterclock/internal/node/repartition"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/statestore"
)

// RepartitionOptions are the options of Repartition.
type RepartitionOptions struct {
	Restore []string // data directories of stopped instances, from which lost changelogs are restored
	DryRun  bool     // only counts the timers; instances may be running
}

// Repartition moves the pending timers of every request topic to the partitions where their IDs belong, after the topic
// was recreated or given more partitions. It prints a report.
func Repartition(ctx context.Context, cfg *config.Config, o RepartitionOptions, out io.Writer) (err error) {
	var views views
	defer func() { err = errors.Join(err, views.close()) }()
	for _, dir := range o.Restore {
		s, err := openStopped(dir)
		if err != nil {
			return err
		}
		views = append(views, s)
	}
	opts, err := connect.CommandOptions(cfg)
	if err != nil {
		return err
	}
	cl, err := connect.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer cl.Close()
	if !o.DryRun {
		if err := repartition.CheckNoMembers(ctx, cl, cfg.Group); err != nil {
			return err
		}
	}
	adm := kadm.NewClient(cl)
	for _, name := range cfg.Requests {
		wanted := policy.TopicOptions(cfg, name, 0, cfg.CreateTopics)
		found, err := topics.Inspect(ctx, adm, name, wanted)
		if err != nil {
			return err
		}
		run := func(set topics.Set, dryRun bool) (repartition.Report, error) {
			job := repartition.Options{
				Client: opts, Admin: cl, Set: &set, Rules: policy.Rules(cfg, set), Group: cfg.Group,
				AcceptGroup: cfg.AcceptGroup, AcceptLost: cfg.AcceptLostChangelog, Now: time.Now, DryRun: dryRun,
			}
			if len(views) > 0 {
				job.View = func(p int32) (*repartition.StoredView, error) {
					return views.newest(statestore.PartitionID{Topic: set.Request.ID, Partition: p})
				}
			}
			r, err := repartition.Run(ctx, job)
			if err != nil {
				return r, fmt.Errorf("request topic %s: %w", name, err)
			}
			return r, nil
		}
		set := found.Set
		if !o.DryRun {
			// A dry run finds obstacles before the changelog grows.
			if set.Changelog.Partitions < set.Request.Partitions {
				if _, err := run(set, true); err != nil {
					return err
				}
			}
			wanted.Grow = true
			if set, _, err = topics.Ensure(ctx, adm, name, wanted); err != nil {
				return err
			}
		}
		r, err := run(set, o.DryRun)
		if err != nil {
			return err
		}
		printRepartition(out, name, &r, o.DryRun)
	}
	return nil
}

// views are the stores of stopped instances.
type views []*statestore.Store

func (v views) close() (err error) {
	for _, s := range v {
		err = errors.Join(err, s.Close())
	}
	return err
}

// newest returns the view of a partition that has applied the most requests, and the latest of several such views. If
// there is none, it returns nil.
func (v views) newest(id statestore.PartitionID) (newest *repartition.StoredView, err error) {
	for _, s := range v {
		m, err := s.Timers(id, nil)
		if err != nil {
			return nil, fmt.Errorf("partition %s: %w", id, err)
		}
		if len(m.Checkpoint) == 0 {
			continue
		}
		cp, err := wire.DecodeCheckpoint(m.Checkpoint)
		if err != nil {
			return nil, fmt.Errorf("partition %s: %w", id, err)
		}
		if newest == nil ||
			cmp.Or(cmp.Compare(cp.Position, newest.Last.Position), cmp.Compare(cp.Time, newest.Last.Time)) > 0 {
			newest = &repartition.StoredView{Last: cp, Each: func(fn func(*timer.Timer) error) error {
				_, err := s.Timers(id, fn)
				return err
			}}
		}
	}
	return newest, nil
}

func printRepartition(out io.Writer, name string, r *repartition.Report, dryRun bool) {
	switch {
	case r.Done():
		fmt.Fprintf(out, "%s: nothing to do, its timers lie as for its %d partitions\n", name, r.Now)
	case dryRun:
		fmt.Fprintf(out, "%s: %d partitions, before %d; to be restored: %d; timers to be moved: %d, to be replaced "+
			"by later requests: %d; nothing was changed\n",
			name, r.Now, r.Before, r.Restored, r.Moved, r.Replaced)
	default:
		fmt.Fprintf(out, "%s: %d partitions, before %d; restored: %d; timers moved: %d, replaced by later requests: "+
			"%d; requests taken in: %d, refused: %d\n",
			name, r.Now, r.Before, r.Restored, r.Moved, r.Replaced, r.Taken, r.Refused)
	}
	if r.Lost > 0 {
		fmt.Fprintf(out, "%s: %d requests were deleted by retention before they were taken in\n", name, r.Lost)
	}
	if r.Misplaced > 0 {
		fmt.Fprintf(out, "%s: %d pending timers lie off their partition, and did before: their producers do not use "+
			"murmur2, so a cancel may miss them\n", name, r.Misplaced)
	}
}

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
