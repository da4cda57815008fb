package commands

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// tailFetchWait is how long a fetch waits for records.
	tailFetchWait = 500 * time.Millisecond
	// tailLook is the interval at which Tail looks for a topic that does not exist yet.
	tailLook = 500 * time.Millisecond
	// tailIdle is how long Tail waits for records before it asks whether the topic still exists. The client reports a
	// topic that is deleted while a fetch waits, but not one that was deleted before the first fetch.
	tailIdle = 3 * time.Second
)

// TailOptions are the options of Tail.
type TailOptions struct {
	Topic         string    // a target topic, or any other
	FromBeginning bool      // all that the topic still has
	Since         time.Time // records from then on; zero: only new ones, unless FromBeginning is set
	Count         int64     // end after that many records; 0: no limit
	JSON          bool
	Notes         io.Writer // remarks, which are not records
}

// Tail prints the records of a topic, as a read_committed consumer sees them, until ctx ends or Count records are
// printed. It waits for a topic that does not exist yet, and then prints all of it. It skips records of an aborted
// transaction. It prints the records of an open one when that is committed.
func Tail(ctx context.Context, cfg *config.Config, o TailOptions, out io.Writer) error {
	if !timer.ValidTopicName(o.Topic) {
		return config.Invalid(fmt.Errorf("%.300q is not a valid topic name: "+
			"those have 1 to %d letters, digits, '.', '_' and '-'", o.Topic, timer.MaxTopicNameBytes))
	}
	from, err := tailFrom(ctx, cfg, &o)
	if err != nil {
		return ended(ctx, err)
	}
	opts, err := connect.CommandOptions(cfg)
	if err != nil {
		return err
	}
	cl, err := kgo.NewClient(append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{o.Topic: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(tailFetchWait))...)
	if err != nil {
		return fmt.Errorf("build client: %w", err)
	}
	defer cl.Close()
	buffered := bufio.NewWriter(out)
	printer := tailPrinter{out: buffered, json: o.JSON}
	for printed := int64(0); ; {
		fetches, err := tailPoll(ctx, cl, o.Topic)
		if err == nil {
			err = tailErrors(cfg, &o, fetches)
		}
		if err != nil {
			return ended(ctx, err)
		}
		for _, r := range byTime(fetches) {
			if err := printer.print(r); err != nil {
				return err
			}
			if printed++; printed == o.Count {
				return buffered.Flush()
			}
		}
		if err := buffered.Flush(); err != nil {
			return err
		}
	}
}

// tailPoll returns the next fetches. They are empty if nothing came for tailIdle and the topic still exists.
func tailPoll(ctx context.Context, cl *kgo.Client, topic string) (kgo.Fetches, error) {
	idle, cancel := context.WithTimeout(ctx, tailIdle)
	defer cancel()
	fetches := cl.PollFetches(idle)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if idle.Err() == nil || fetches.NumRecords() > 0 {
		return fetches, nil
	}
	if listed, err := kadm.NewClient(cl).ListTopics(ctx, topic); err == nil && !listed.Has(topic) {
		return nil, errDeleted(topic)
	}
	return nil, nil
}

func errDeleted(topic string) error { return fmt.Errorf("topic %s was deleted", topic) }

// ended returns nil if an interrupt has ended the command.
func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// tailFrom returns where reading begins, by partition.
func tailFrom(ctx context.Context, cfg *config.Config, o *TailOptions) (map[int32]kgo.Offset, error) {
	cl, err := connect.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	missing, err := connect.MissingTopics(ctx, cl, []topics.Grant{tailGrant(o.Topic)})
	if err != nil {
		return nil, err
	}
	for _, g := range missing {
		return nil, errors.New(connect.Missing(cfg, g))
	}
	admin := kadm.NewClient(cl)
	span := "from now on"
	switch {
	case o.FromBeginning:
		span = "from its beginning"
	case !o.Since.IsZero():
		span = "since " + o.Since.UTC().Format(time.RFC3339)
	}
	// The end is the last stable offset: records of an open transaction come when it ends.
	ends, err := connect.Offsets(admin.ListCommittedOffsets(ctx, o.Topic))
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		fmt.Fprintf(o.Notes, "There is no topic %s yet: waiting for it; an interrupt ends that.\n", o.Topic)
		for errors.Is(err, kerr.UnknownTopicOrPartition) {
			if !beats.Sleep(ctx, tailLook) {
				return nil, ctx.Err()
			}
			ends, err = connect.Offsets(admin.ListCommittedOffsets(ctx, o.Topic))
		}
		o.FromBeginning, span = true, "from its beginning"
	}
	if err != nil {
		return nil, fmt.Errorf("list the ends of %s: %w", o.Topic, err)
	}
	since := ends
	if !o.FromBeginning && !o.Since.IsZero() {
		since, err = connect.Offsets(admin.ListOffsetsAfterMilli(ctx, o.Since.UnixMilli(), o.Topic))
		if err != nil {
			return nil, fmt.Errorf("find the first record of %s %s: %w", o.Topic, span, err)
		}
	}
	from := make(map[int32]kgo.Offset)
	for p, end := range ends {
		if first, some := since[p]; some && first >= 0 { // records that were committed since ends are not skipped
			end = min(first, end)
		}
		from[p] = kgo.NewOffset().At(end)
		if o.FromBeginning {
			from[p] = kgo.NewOffset().AtStart()
		}
	}
	fmt.Fprintf(o.Notes, "Reading topic %s %s; an interrupt ends it.\n", o.Topic, span)
	return from, nil
}

func tailGrant(topic string) topics.Grant {
	return topics.Grant{
		Resource: kmsg.ACLResourceTypeTopic, Name: topic, Operations: []kmsg.ACLOperation{kmsg.ACLOperationRead},
		Why: "to read the topic",
	}
}

// tailErrors returns the errors that end reading. The client retries temporary ones. Retention is only noted.
func tailErrors(cfg *config.Config, o *TailOptions, fetches kgo.Fetches) error {
	for _, f := range fetches.Errors() {
		var gone *kgo.ErrDataLoss
		switch {
		case errors.As(f.Err, &gone):
			fmt.Fprintf(o.Notes, "%s/%d was cut while it was read: reading goes on at offset %d, after offset %d.\n",
				o.Topic, f.Partition, gone.ResetTo, gone.ConsumedTo)
		case errors.Is(f.Err, kerr.TopicAuthorizationFailed):
			return errors.New(connect.Missing(cfg, tailGrant(o.Topic)))
		case errors.Is(f.Err, kerr.UnknownTopicOrPartition), errors.Is(f.Err, kerr.UnknownTopicID):
			return errDeleted(o.Topic)
		default:
			return fmt.Errorf("read %s/%d: %w", o.Topic, f.Partition, f.Err)
		}
	}
	return nil
}

// byTime returns the records of a fetch, by their timestamps as far as the order of each partition allows.
func byTime(fetches kgo.Fetches) []*kgo.Record {
	type placed struct {
		at time.Time // the latest timestamp so far in the record's partition
		r  *kgo.Record
	}
	var all []placed
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		var latest time.Time
		for _, r := range p.Records {
			if r.Timestamp.After(latest) {
				latest = r.Timestamp
			}
			all = append(all, placed{latest, r})
		}
	})
	slices.SortStableFunc(all, func(x, y placed) int { return x.at.Compare(y.at) })
	records := make([]*kgo.Record, 0, len(all))
	for _, p := range all {
		records = append(records, p.r)
	}
	return records
}
