package repartition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// owner is the owner that checkpoints and claims name, for people.
	owner = "waterclock topics follow"
	// settleLimit bounds the wait for open transactions on a changelog. Those of the group were ended before, and
	// their markers come within moments.
	settleLimit = 30 * time.Second
	settlePause = 20 * time.Millisecond
)

// Options of Run.
type Options struct {
	Client []kgo.Opt   // of the transactional producer
	Admin  *kgo.Client // reads and asks
	// Set is the topics as they are. The service's own topics already have the request topic's partition count.
	Set   *topics.Set
	Rules *intake.Rules // by which requests are judged, with the new partition count
	Group string
	// AcceptGroup lets the changelog be that of another group.
	AcceptGroup bool
	Now         func() time.Time
	// View returns the newest local view of a partition whose changelog was lost; nil if there is none. Without a View
	// function a lost changelog is an error.
	View func(partition int32) (*StoredView, error)
	// AcceptLost accepts a view that lacks the last steps.
	AcceptLost bool
	// DryRun counts the timers and changes nothing. Instances may run, and the service's own topics may lack
	// partitions, or may not exist.
	DryRun bool
}

// StoredView is the view of a partition in a stopped instance's directory.
type StoredView struct {
	Last wire.Checkpoint // that it has seen
	// Each calls a function with every pending timer.
	Each func(func(*timer.Timer) error) error
}

// Report is the result of Run.
type Report struct {
	Before, Now int32 // partitions
	Recreated   bool  // the request topic was recreated, or the changelog is a copy
	Restored    int   // partitions whose changelog was lost
	Moved       int   // timers that are pending at a new place or under a new generation
	Replaced    int   // timers whose ID was pending at its new place already
	Taken       int   // requests that were processed
	Refused     int   // of them, those that became dead letters
	Lost        int64 // requests that retention has deleted before they were processed
	Misplaced   int   // timers on a wrong partition, which were there before
}

// Done reports whether there was nothing to do.
func (r *Report) Done() bool { return r.Before == r.Now && !r.Recreated && r.Restored == 0 }

// job is the state of one Run.
type mover struct {
	o      Options
	parts  []part              // by partition, as many as there are now
	early  map[string]struct{} // IDs that are pending on their new partition already
	out    *writer
	report Report
}

// part is one partition.
type part struct {
	changelog bounds
	requests  bounds // the part of the request log that is processed here
	last      *wire.Checkpoint
	note      wire.CommitNote // of the committed offset
	view      *StoredView     // in place of the changelog, if that was lost
	// leaving has, for each ID that leaves the partition, the last request that was processed; nil for a cancel.
	leaving map[string]*timer.Timer
}

type bounds struct{ from, end int64 }

// Run moves the pending timers of one request topic to where the topic's IDs belong now.
func Run(ctx context.Context, o Options) (Report, error) {
	j := &mover{o: o, parts: make([]part, o.Set.Request.Partitions), early: make(map[string]struct{})}
	err := j.run(ctx)
	return j.report, err
}

func (m *mover) run(ctx context.Context) error {
	if m.o.DryRun {
		return m.count(ctx)
	}
	if err := CheckNoMembers(ctx, m.o.Admin, m.o.Group); err != nil {
		return err
	}
	if err := repair.EndAll(ctx, m.o.Admin, m.o.Group); err != nil {
		return err
	}
	if err := m.look(ctx); err != nil || m.report.Done() {
		return err
	}
	for i := range m.parts {
		if err := m.requests(ctx, i); err != nil {
			return err
		}
	}
	var err error
	if m.out, err = begin(ctx, m); err != nil {
		return err
	}
	defer m.out.close()
	if err := errors.Join(m.write(ctx), m.out.flush(ctx)); err != nil {
		return fmt.Errorf("%w; nothing was changed", err)
	}
	if err := CheckNoMembers(ctx, m.o.Admin, m.o.Group); err != nil {
		return fmt.Errorf("%w; nothing was changed", err)
	}
	return m.out.commit(ctx)
}

// count is run without its effects.
func (m *mover) count(ctx context.Context) error {
	if err := m.look(ctx); err != nil || m.report.Done() {
		return err
	}
	for i := range m.before() {
		if err := m.move(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

// CheckNoMembers returns an error if the group has members. The error names their hosts.
func CheckNoMembers(ctx context.Context, cl *kgo.Client, group string) error {
	groups, err := kadm.NewClient(cl).DescribeGroups(ctx, group)
	if err != nil {
		return fmt.Errorf("describe group %s: %w", group, err)
	}
	g := groups[group]
	if g.Err != nil && g.State != "Dead" {
		return fmt.Errorf("describe group %s: %w", group, g.Err)
	}
	if len(g.Members) == 0 {
		return nil
	}
	hosts := make([]string, len(g.Members))
	for i, m := range g.Members {
		hosts[i] = strings.TrimPrefix(m.ClientHost, "/")
	}
	return fmt.Errorf("group %s has members, %d of them, on %s: stop every instance, and wait until they have left "+
		"(--session-timeout)",
		group, len(g.Members), strings.Join(slices.Compact(slices.Sorted(slices.Values(hosts))), ", "))
}

// look determines the work to do.
func (m *mover) look(ctx context.Context) error {
	m.report.Now = int32(len(m.parts))
	there := len(m.parts)
	if m.o.DryRun {
		there = min(there, int(m.o.Set.Changelog.Partitions))
	}
	for i := range there {
		b, err := m.settled(ctx, m.changelog(i))
		if err != nil {
			return err
		}
		m.parts[i].changelog = b
	}
	if err := errors.Join(m.noted(ctx), m.written(ctx)); err != nil {
		return err
	}
	if m.report.Before > m.report.Now {
		return fmt.Errorf("request topic %s has %d partitions and its timers lie as for %d: give it as many",
			m.o.Set.Request.Name, m.report.Now, m.report.Before)
	}
	if m.report.Before == 0 {
		m.report.Before = m.report.Now // nothing was ever taken
		return nil
	}
	for i := range m.before() {
		if err := errors.Join(m.scan(ctx, i), m.restore(i)); err != nil {
			return err
		}
	}
	return nil
}

// before returns the partitions that existed before.
func (m *mover) before() []part { return m.parts[:m.report.Before] }

// written takes the former partition count from the changelog, if no committed offset has it: the last partition with a
// checkpoint was the last one. The log's end proves nothing, because an abandoned attempt leaves records there.
func (m *mover) written(ctx context.Context) error {
	for i := len(m.parts) - 1; i >= 0 && m.report.Before == 0; i-- {
		err := m.read(ctx, m.changelog(i), m.parts[i].changelog, nil, func(rec *kgo.Record) error {
			kind, _, err := wire.ParseKey(rec.Key)
			if kind == wire.KindCheckpoint {
				m.report.Before = int32(i + 1)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// noted takes the former partition count from the notes that the group's steps have committed with their offsets.
func (m *mover) noted(ctx context.Context) error {
	committed, err := kadm.NewClient(m.o.Admin).FetchOffsets(ctx, m.o.Group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return fmt.Errorf("read the group's offsets: %w", err)
	}
	for _, o := range committed[m.o.Set.Request.Name] {
		note, err := wire.ParseCommitNote(o.Metadata)
		if err != nil {
			continue
		}
		if int(o.Partition) < len(m.parts) {
			m.parts[o.Partition].note = note
		}
		switch {
		case note.Partitions > 0:
			m.report.Before = note.Partitions
		case m.report.Before == 0:
			m.report.Before = m.report.Now // an earlier version's note
		}
	}
	return nil
}

// settled waits until no transaction is open on a log. A dry run does not wait: it reads the committed records.
func (m *mover) settled(ctx context.Context, t partlog.Log) (bounds, error) {
	for patience := time.Now().Add(settleLimit); ; {
		start, stable, end, err := partlog.Bounds(ctx, m.o.Admin, t)
		if err != nil || stable == end || m.o.DryRun {
			return bounds{start, stable}, err
		}
		if time.Now().After(patience) {
			return bounds{}, fmt.Errorf("a transaction is open on %v at offset %d: find its producer with "+
				"kafka-transactions.sh, and end it", t, stable)
		}
		if !beats.Sleep(ctx, settlePause) {
			return bounds{}, ctx.Err()
		}
	}
}

// scan reads a changelog partition for its last checkpoint, and for the IDs that are pending there and did not belong
// there before.
func (m *mover) scan(ctx context.Context, i int) error {
	p := &m.parts[i]
	misplaced := make(map[string]struct{})
	err := m.read(ctx, m.changelog(i), p.changelog, nil, func(rec *kgo.Record) error {
		kind, id, err := wire.ParseKey(rec.Key)
		switch {
		case err != nil:
			return err
		case kind == wire.KindCheckpoint:
			cp, err := wire.DecodeCheckpoint(rec.Value)
			p.last = &cp
			return err
		case kind == wire.KindClaim && p.last != nil:
			c, err := wire.DecodeClaim(rec.Value)
			p.last.Group = c.Group // of the last writer
			return err
		case kind != wire.KindTimer || m.formerPartition(id) == int32(i):
			return nil
		}
		off := misplaced
		if m.currentPartition(id) == int32(i) {
			off = m.early
		}
		if rec.Value == nil {
			delete(off, string(id))
		} else {
			off[string(id)] = struct{}{}
		}
		return nil
	})
	m.report.Misplaced += len(misplaced)
	if err != nil || p.last == nil {
		return err
	}
	if p.last.Group != m.o.Group && !m.o.AcceptGroup {
		return fmt.Errorf("changelog %s was written by group %q and this is group %q: give it with --group, or "+
			"--accept-group if that one is gone",
			m.o.Set.Changelog.Name, p.last.Group, m.o.Group)
	}
	if p.last.Request != m.o.Set.Request.ID || p.last.Changelog != m.o.Set.Changelog.ID {
		m.report.Recreated = true
	}
	return nil
}

// The partitions of an ID's requests before and now.
func (m *mover) formerPartition(id []byte) int32  { return intake.Murmur2Partition(id, m.report.Before) }
func (m *mover) currentPartition(id []byte) int32 { return intake.Murmur2Partition(id, m.report.Now) }

// homeOf is where a timer of partition i belongs.
func (m *mover) homeOf(id []byte, i int) int {
	if m.formerPartition(id) != int32(i) {
		return i
	}
	return int(m.currentPartition(id))
}

// requests finds the part of the request log to be processed.
func (m *mover) requests(ctx context.Context, i int) error {
	p := &m.parts[i]
	if p.last == nil || m.report.Recreated {
		start, _, _, err := partlog.Bounds(ctx, m.o.Admin, m.requestLog(i))
		p.requests = bounds{start, start} // the service reads them
		return err
	}
	log, err := m.settled(ctx, m.requestLog(i))
	if err != nil {
		return err
	}
	from := p.last.Position
	if from > log.end {
		return topics.LostTail(from, m.requestLog(i), log.end)
	}
	m.report.Lost += max(0, log.from-from)
	p.requests = bounds{max(from, log.from), log.end}
	return nil
}

func (m *mover) changelog(i int) partlog.Log {
	return partlog.Log{Topic: m.o.Set.Changelog.Name, ID: m.o.Set.Changelog.ID, Partition: int32(i)}
}

func (m *mover) requestLog(i int) partlog.Log {
	return partlog.Log{Topic: m.o.Set.Request.Name, ID: m.o.Set.Request.ID, Partition: int32(i)}
}

// read calls take with each committed record of a log within bounds. It calls skip, unless that is nil, with batches
// that cannot be read, and passes them.
func (m *mover) read(
	ctx context.Context, t partlog.Log, within bounds, skip func(*partlog.Unreadable), take func(*kgo.Record) error,
) error {
	r := partlog.NewReader(m.o.Admin, t, within.from)
	if r.SetCompacted(skip == nil); skip != nil {
		r.SetMaxUnpacked(max(partlog.MaxUnpacked, m.o.Set.Request.MaxMessageBytes))
	}
	for page, err := range r.To(ctx, within.end) {
		bad, unreadable := errors.AsType[*partlog.Unreadable](err)
		switch {
		case m.out.failed() != nil:
			return nil
		case unreadable && skip != nil:
			skip(bad)
			r.SetPosition(bad.Next)
		case err != nil:
			return err
		}
		for _, rec := range page.Records {
			if rec.Offset >= within.end {
				return nil
			}
			if err := take(rec); err != nil {
				return fmt.Errorf("record %v/%d: %w", t, rec.Offset, err)
			}
		}
	}
	return nil
}
