package node

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/timer"
)

// lookedAt is a live partition that notes when it was last told where its log ends.
type lookedAt struct {
	servedPartition
	life *ownership.Life

	mu   sync.Mutex // guards the fields below
	at   time.Time
	most time.Duration // the longest time between two looks
	n    int
}

// held is a token that holds.
type held struct{ emitter.Token }

func (held) Err() error { return nil }

func (l *lookedAt) Life() *ownership.Life { return l.life }

func (l *lookedAt) SetLogEnd(ownership.LogEnd) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.n > 0 {
		l.most = max(l.most, now.Sub(l.at))
	}
	l.at, l.n = now, l.n+1
}

func (l *lookedAt) looks() (int, time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n, l.most
}

// A silent leader delays the figures of its own logs only: the lag of all others is a second old. When it answers
// again, so is its own.
func TestASilentLeaderHoldsUpNoOthersLag(t *testing.T) {
	t.Parallel()
	const partitions = 6
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(3), kfake.SeedTopics(partitions, "r"))
	ps, byNode := newPartitions(slog.New(slog.DiscardHandler)), make(map[int32][]*lookedAt)
	for n := range int32(partitions) {
		p := &lookedAt{life: ownership.New(ownership.Options{
			Topics: new(topics.Set), Token: held{}, Logger: slog.New(slog.DiscardHandler),
		}, nil)}
		p.life.SetState(ownership.Live)
		ps.owned[timer.TopicPartition{Topic: "r", Partition: n}] = &owned{p: p}
		if err := c.MoveTopicPartition("r", n, n%3); err != nil {
			t.Fatal(err)
		}
	}
	leaders, err := partlog.Leaders(t.Context(), cl, []string{"r"}, time.Minute)
	if err != nil || len(leaders) != partitions {
		t.Fatal(leaders, err)
	}
	for l, leader := range leaders {
		byNode[leader] = append(byNode[leader], ps.owned[l].p.(*lookedAt))
	}
	silentNode := leaders[timer.TopicPartition{Topic: "r"}]
	var silent sync.RWMutex // held while the broker is silent
	c.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if c.CurrentNode() == silentNode {
			c.SleepControl(func() { silent.RLock(); silent.RUnlock() }) //nolint:staticcheck // it waits
		}
		return nil, nil, false
	})
	e := newLogEnds(ps, nil, cl, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = e.Run(ctx) }()
	all := func(nodes func(int32) bool, n int) func() bool {
		return func() bool {
			for node, ps := range byNode {
				for _, p := range ps {
					if looks, _ := p.looks(); nodes(node) && looks < n {
						return false
					}
				}
			}
			return true
		}
	}
	await.Until(t, time.Minute, "all are looked at, by leader", all(func(int32) bool { return true }, 3))
	silent.Lock()
	for _, ps := range byNode {
		for _, p := range ps {
			p.mu.Lock()
			p.n, p.most = 0, 0
			p.mu.Unlock()
		}
	}
	await.Until(t, time.Minute, "the others are looked at", all(func(node int32) bool { return node != silentNode }, 8))
	for node, ps := range byNode {
		for _, p := range ps {
			n, most := p.looks()
			if node == silentNode && n > 1 {
				t.Errorf("%d looks at a log whose leader is silent", n)
			}
			if node != silentNode && most > 5*endsEvery { // the silent one would hold them up for as long as it is
				t.Errorf("%v between two looks at a log of broker %d, while broker %d is silent", most,
					node, silentNode)
			}
		}
	}
	silent.Unlock()
	await.Until(t, time.Minute, "its own are looked at again", all(func(int32) bool { return true }, 3))
	cancel()
	<-done
}

// The brokers are asked for the producer until everything is known: a silent broker may answer the next time. Earlier
// answers are kept.
func TestAHoldersNameIsAskedForUntilItIsKnown(t *testing.T) {
	now := time.Now()
	k := timer.TopicPartition{Topic: "r"}
	h := &openTransaction{at: 7, seen: now, by: ownership.Held{From: 7, Since: now}}
	e := &logEnds{held: map[timer.TopicPartition]*openTransaction{k: h}}
	began := now.Add(-time.Minute)
	e.take(map[timer.TopicPartition]producer{k: {7, repair.Holder{ProducerID: 4}, time.Time{}}})
	if h.known || h.by.ProducerID != "4" {
		t.Errorf("of a producer whose coordinator is silent: %+v", h)
	}
	e.take(map[timer.TopicPartition]producer{k: {7,
		repair.Holder{ProducerID: 4, TransactionalID: "billing", Began: began}, time.Time{}}})
	if h.known || h.by.TransactionalID != "billing" || !h.by.Since.Equal(began) {
		t.Errorf("of a record that could not be read: %+v", h)
	}
	e.take(map[timer.TopicPartition]producer{k: {7, repair.Holder{ProducerID: -1}, began}})
	if !h.known || h.by.TransactionalID != "billing" || !h.by.Oldest.Equal(began) {
		t.Errorf("in the end: %+v", h)
	}
}
