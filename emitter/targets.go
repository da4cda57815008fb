package emitter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// targetRefresh is how old the partition count used for placement may be.
	targetRefresh = 5 * time.Second
	// targetUnknown is how long a topic that does not exist is taken to be
	// missing before it is asked for again.
	targetUnknown = time.Second
	// targetIdle is how long a topic stays in the cache without being used.
	targetIdle = 10 * time.Minute
	// lookupTimeout bounds a look-up that a step waits for.
	lookupTimeout = 2 * time.Second
	// defaultBatchMaxBytes is Kafka's default for max.message.bytes.
	defaultBatchMaxBytes = 1_048_588
)

// Target is what is known of one target topic.
type Target struct {
	// Leader tells for each partition whether it has a leader; its length is
	// the partition count.
	Leader []bool
	// Compacted says that the topic refuses records without a key.
	Compacted bool
	// Err is the broker's verdict if the topic can not be used.
	Err error
}

// Targets caches the metadata of target topics, so that placing an emission
// asks no broker. mu guards topics; requests are made without it.
type Targets struct {
	client     *kgo.Client
	autoCreate bool
	moves      func(TargetPartition) // nil: nobody wants to know; see onMoved

	mu       sync.Mutex
	topics   map[string]*target
	versions int64    // the last version given
	wanted   []string // to be fetched by Run
	wake     chan struct{}
}

type target struct {
	Target
	id       [16]byte
	epochs   []int32   // leader epochs by partition
	version  int64     // see Version
	fetched  time.Time // zero: to be asked for before it is used again
	used     time.Time
	maxBytes int32
}

// NewTargets returns a cache that asks through cl. autoCreate lets the broker
// create topics on first use, where it is configured to (waterclock dev).
func NewTargets(cl *kgo.Client, autoCreate bool) *Targets {
	return &Targets{client: cl, autoCreate: autoCreate, topics: make(map[string]*target), wake: make(chan struct{}, 1)}
}

// Lookup returns what is known of a topic; it asks the broker only for a topic
// that was not asked for in time. Target.Err is the broker's verdict; err means
// that there is none.
func (t *Targets) Lookup(ctx context.Context, topic string) (Target, error) {
	if known, ok := t.cached(topic); ok {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	if err := t.fetch(ctx, []string{topic}); err != nil {
		return Target{}, err
	}
	known, ok := t.cached(topic)
	switch {
	case ok:
		return known, nil
	case known.Err != nil:
		return Target{}, fmt.Errorf("look up target topic %s: %w", topic, known.Err)
	}
	return Target{}, fmt.Errorf("look up target topic %s: the brokers do not say", topic)
}

// LookupAll asks for those of many topics that are not known, at once, so that
// as many Lookups that follow ask nobody.
func (t *Targets) LookupAll(ctx context.Context, topics map[string]struct{}) error {
	var unknown []string
	for topic := range topics {
		if _, ok := t.cached(topic); !ok {
			unknown = append(unknown, topic)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return t.fetch(ctx, unknown)
}

// Stale says that what is known of a topic was proved wrong: it is asked for
// before it is used again.
func (t *Targets) Stale(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.topics[topic]; e != nil {
		e.fetched = time.Time{}
	}
}

// Version numbers what a client must know of a topic to write to it: it moves
// when the topic is made anew, gains partitions or has another size limit.
func (t *Targets) Version(topic string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.topics[topic]; e != nil {
		return e.version
	}
	return 0
}

// moved gives a new version. The lock is held.
func (t *Targets) moved(e *target) {
	t.versions++
	e.version = t.versions
}

func (t *Targets) cached(topic string) (Target, bool) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.topics[topic]
	switch {
	case e == nil || e.fetched.IsZero():
		return Target{}, false
	case e.Err != nil && !refusedForGood(e.Err):
		return Target{Err: e.Err}, false // no verdict: ask again
	case e.Err != nil && now.Sub(e.fetched) > targetUnknown:
		return Target{}, false
	}
	e.used = now
	return e.Target, true
}

// Cached returns what is known of a topic, without asking anybody.
func (t *Targets) Cached(topic string) (Target, bool) { return t.cached(topic) }

// onMoved has f called, without a lock, for each partition that lost its leader
// or has had another one since it was last asked for. Set it before anything else.
func (t *Targets) onMoved(f func(TargetPartition)) { t.moves = f }

// leadership is who leads a partition, by what was heard last.
type leadership uint8

const (
	led leadership = iota
	leaderless
	noPartition // or no such topic
)

func (t *Targets) state(p TargetPartition) leadership {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.topics[p.Topic]
	switch {
	case e == nil, e.Err != nil && !gone(e.Err), e.Err == nil && len(e.Leader) == 0:
		return leaderless // not known
	case e.Err != nil, int(p.Partition) >= len(e.Leader):
		return noPartition
	case !e.Leader[p.Partition]:
		return leaderless
	}
	return led
}

// Stalled reports whether one of our own partitions was last seen without a
// leader.
func (t *Targets) Stalled(topic string, partition int32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.topics[topic]
	return e != nil && e.Err == nil && int(partition) < len(e.Leader) && !e.Leader[partition]
}

// Prefetch asks for a topic in the background, if it is not known.
func (t *Targets) Prefetch(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.topics[topic] != nil || len(t.wanted) >= 1000 {
		return
	}
	for _, w := range t.wanted {
		if w == topic {
			return
		}
	}
	t.wanted = append(t.wanted, topic)
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// BatchMaxBytes is the largest record batch that a topic takes, as far as known.
func (t *Targets) BatchMaxBytes(topic string) int32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.topics[topic]; e != nil && e.maxBytes > 0 {
		return e.maxBytes
	}
	return defaultBatchMaxBytes
}

// SetBatchMaxBytes tells the limit of one of the service's own topics.
func (t *Targets) SetBatchMaxBytes(topic string, n int32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.topics[topic] = &target{maxBytes: n, used: time.Now().Add(100 * 365 * 24 * time.Hour)}
}

// Run refreshes what is used until ctx ends.
func (t *Targets) Run(ctx context.Context) error {
	tick := time.NewTicker(targetRefresh)
	defer tick.Stop()
	for {
		var names []string
		select {
		case <-ctx.Done():
			return nil
		case <-t.wake:
			names = t.takeWanted()
		case <-tick.C:
			names = t.inUse()
		}
		if len(names) > 0 {
			_ = t.fetch(ctx, names) // what is known stays; placement errors show at produce
		}
	}
}

func (t *Targets) takeWanted() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.wanted
	t.wanted = nil
	return w
}

func (t *Targets) inUse() (names []string) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, e := range t.topics {
		switch {
		case now.Sub(e.used) > targetIdle, e.Err != nil && now.Sub(e.used) > targetRefresh:
			delete(t.topics, name)
		default:
			names = append(names, name) // our own are used for ever
		}
	}
	return names
}

// UnknownTopic reports whether a target's error says that it does not exist.
func UnknownTopic(err error) bool {
	return errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.InvalidTopicException)
}

// TooLarge reports whether a target refused a record for its size.
func TooLarge(err error) bool {
	return errors.Is(err, kerr.MessageTooLarge) || errors.Is(err, kerr.RecordListTooLarge)
}

// NotAuthorized reports whether the service may not write to a target.
func NotAuthorized(err error) bool { return errors.Is(err, kerr.TopicAuthorizationFailed) }
