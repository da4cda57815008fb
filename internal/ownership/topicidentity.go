package ownership

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
)

// sameTopics checks that the topics are those that the instance started with. Requests are read by the topic's name, so
// if the topic was recreated, those below the old position would be silently skipped.
func sameTopics(ctx context.Context, o *Options) error {
	// If authorised operations are requested, kadm does not answer from its cache, which would hide a new topic ID.
	details, err := kadm.NewClient(o.Client).ListTopics(kadm.WithAuthorizedOps(ctx), o.Topics.Request.Name,
		o.Topics.Changelog.Name)
	if err != nil {
		return fmt.Errorf("look whether topics are the same: %w", err)
	}
	for _, t := range []*topics.Topic{&o.Topics.Request, &o.Topics.Changelog} {
		switch got, there := details[t.Name]; {
		case !there:
		case got.Err != nil:
			return fmt.Errorf("look whether topic %s is the same: %w", t.Name, got.Err)
		case got.ID != t.ID:
			return &Fatal{fmt.Errorf("topic %s was recreated while this instance ran (its ID is %s, it was %s): %s",
				t.Name, topics.TopicID(got.ID), topics.TopicID(t.ID), o.Topics.ChangedAdvice(t.Name))}
		}
	}
	return nil
}

// samePartitions checks that the request topic has as many partitions as when the note was written. Otherwise a timer
// whose ID belongs on another partition now would miss its cancels.
func samePartitions(o *Options, note wire.CommitNote) error {
	if is := o.Topics.Request.Partitions; note.Partitions != 0 && note.Partitions != is {
		return &Fatal{fmt.Errorf("request topic %s has %d partitions and its timers lie as for %d: %s",
			o.Topics.Request.Name, is, note.Partitions, topics.FollowAdvice)}
	}
	return nil
}

// SamePartitionsElsewhere checks, for a partition that nobody has acquired yet, that the request topic has as many
// partitions as when its other partitions were acquired. The notes of those tell whether the topic is new or has grown.
// The changelog does not, since it may have been given partitions by hand.
func (l *Life) SamePartitionsElsewhere(ctx context.Context) error {
	committed, err := kadm.NewClient(l.o.Client).FetchOffsets(ctx, l.o.Group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the offsets of other partitions: %w", err)
	}
	for _, c := range committed[l.o.Topics.Request.Name] {
		note, err := wire.ParseCommitNote(c.Metadata)
		if err != nil {
			continue // not written by waterclock: see stableOffset
		}
		if err := samePartitions(&l.o, note); err != nil {
			return err
		}
	}
	return nil
}
