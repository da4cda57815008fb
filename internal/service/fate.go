package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/timer"
)

// Fate is what a request became, as a plain consumer of the topics beside its
// request topic sees it. At most one field is set; with none the request is
// decided and has left nothing: its timer was due and fired in the step that took
// it in, or a later request for the same ID took its place there.
type Fate struct {
	// Pending is the changelog record that holds its timer.
	Pending *waterclock.Source
	// Refused is its dead letter.
	Refused *waterclock.DeadLetter
}

// ErrUndecided says that nobody has taken a request in yet.
var ErrUndecided = errors.New("nobody has taken the request in")

// watcher learns the fate of one request. It is made before the request is
// written, so that it cannot overlook what comes of it, and needs no right but
// Read on the changelog and the dead letters.
//
// The changelog has either the timer, or a checkpoint whose position lies beyond
// the request: then it is decided, and if it was refused the dead letter was
// written in that step or before. So what is in the dead letters' logs by then is
// read to its end, which waits for the step's marker there.
type watcher struct {
	cfg    *config.Config
	client *kgo.Client // asks for the ends of logs
	topic  string      // of requests
	// letters is the topic of their dead letters.
	letters string
	from    map[string]map[int32]kgo.Offset

	sent    Sent
	fate    Fate
	decided bool
	dead    map[int32]int64 // what of the dead letters was read, by partition
	until   map[int32]int64 // once decided: up to where they must be
}

// watch begins to look at what becomes of requests on a topic.
func watch(ctx context.Context, cfg *config.Config, cl *kgo.Client, topic string) (*watcher, error) {
	w := &watcher{cfg: cfg, client: cl, topic: topic, letters: deadLetters(cfg, topic), from: make(map[string]map[int32]kgo.Offset), dead: make(map[int32]int64)}
	if err := w.mayRead(ctx); err != nil {
		return nil, err
	}
	if _, err := w.ends(ctx, topic); errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil, noRequestTopic(topic)
	} else if err != nil {
		return nil, err
	}
	for _, own := range []string{delaytopics.Changelog(topic), w.letters} {
		ends, err := w.ends(ctx, own)
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil, fmt.Errorf("there is no topic %s: nobody has ever served %s; start waterclock serve", own, topic)
		}
		if err != nil {
			return nil, err
		}
		w.from[own] = make(map[int32]kgo.Offset, len(ends))
		for p, end := range ends {
			w.from[own][p] = kgo.NewOffset().At(end)
			if own == w.letters {
				w.dead[p] = end
			}
		}
	}
	return w, nil
}

func (w *watcher) mayRead(ctx context.Context) error {
	var grants []delaytopics.Grant
	for _, own := range []string{delaytopics.Changelog(w.topic), w.letters} {
		grants = append(grants, delaytopics.Grant{Resource: kmsg.ACLResourceTypeTopic, Name: own, Operations: []kmsg.ACLOperation{kmsg.ACLOperationRead}})
	}
	missing, err := missingTopics(ctx, w.client, grants)
	for _, g := range missing {
		err = errors.Join(err, errors.New("--wait: "+g.Missing(aclServer(w.cfg), principal(w.cfg))))
	}
	return err
}

// ends are the high watermarks of a topic, by partition.
func (w *watcher) ends(ctx context.Context, topic string) (map[int32]int64, error) {
	listed, err := kadm.NewClient(w.client).ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("list the ends of %s: %w", topic, err)
	}
	ends := make(map[int32]int64)
	listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	return ends, nil
}

// await returns the fate of what was sent, or ErrUndecided after the limit.
func (w *watcher) await(ctx context.Context, sent Sent, limit time.Duration) (Fate, error) {
	w.sent = sent
	log := delaytopics.Changelog(w.topic)
	w.from[log] = map[int32]kgo.Offset{sent.Partition: w.from[log][sent.Partition]}
	opts, err := clientOptions(w.cfg, "waterclock-cli", slog.New(slog.DiscardHandler))
	if err != nil {
		return Fate{}, err
	}
	// Markers are records here: without them the end of a log that one closes
	// could not be told.
	cl, err := kgo.NewClient(append(opts, kgo.ConsumePartitions(w.from), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())...)
	if err != nil {
		return Fate{}, fmt.Errorf("build client: %w", err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for !w.done() {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return Fate{}, fmt.Errorf("%w within %s: does waterclock serve run for %s, with these brokers?",
				ErrUndecided, config.FormatDuration(limit), w.topic)
		}
		fetches.EachRecord(w.record)
		if w.decided && w.until == nil {
			if w.until, err = w.ends(ctx, w.letters); err != nil {
				return Fate{}, err
			}
		}
	}
	return w.fate, nil
}

// done reports whether the fate is known.
func (w *watcher) done() bool {
	if w.fate != (Fate{}) {
		return true
	}
	for p, end := range w.until {
		if w.dead[p] < end {
			return false
		}
	}
	return w.until != nil
}

func (w *watcher) record(r *kgo.Record) {
	letters := r.Topic == w.letters
	if letters {
		w.dead[r.Partition] = r.Offset + 1
	}
	switch {
	case r.Attrs.IsControl():
	case letters:
		d, err := waterclock.ParseDeadLetter(r)
		if err == nil && d.Source == (waterclock.Source{Topic: w.sent.Topic, Partition: w.sent.Partition, Offset: w.sent.Offset}) {
			w.fate = Fate{Refused: &d}
		}
	default:
		w.change(r)
	}
}

// change takes a record of the changelog in. What it does not know, of a later
// version perhaps, is not for it to judge.
func (w *watcher) change(r *kgo.Record) {
	kind, _, err := delaytopics.ParseKey(r.Key)
	switch {
	case err != nil:
	case kind == delaytopics.KindTimer && r.Value != nil:
		if t, err := timer.Decode(r.Value); err == nil && t.Offset == w.sent.Offset {
			w.fate = Fate{Pending: &waterclock.Source{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}}
		}
	case kind == delaytopics.KindCheckpoint:
		if c, err := delaytopics.DecodeCheckpoint(r.Value); err == nil && c.Position > w.sent.Offset {
			w.decided = true
		}
	}
}
