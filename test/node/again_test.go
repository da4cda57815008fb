package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/timer/query"
	"github.com/waterclock/waterclock/test/rig"
)

// Partitions fail at any moment, under load and while they are asked, and are acquired again under the same tokens.
// Each timer fires once, each firing is counted once, and in the end nothing is on its way.
func TestPartitionsThatAreAcquiredAgainUnderLoad(t *testing.T) {
	t.Parallel()
	const (
		lives     = 10
		perSecond = 500
	)
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, requests, target))
	var mu sync.Mutex // guards owned
	var owned []*partition.Partition
	cfg := rig.Config(t, c.ListenAddrs(), requests)
	cfg.SubPartitions = 3
	in := rig.Serve(t, cfg, node.Options{
		// so committed steps wait when a life ends
		BeforeApply: func(string, int32) { await.For(t, rand.N(30*time.Millisecond)) },
		Assigned: func(p *partition.Partition) {
			mu.Lock()
			defer mu.Unlock()
			owned = append(owned, p)
		},
	})
	in.Ready(2, limit)
	mu.Lock()
	parts := slices.Clone(owned)
	mu.Unlock()
	reader, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.ConsumeTopics(target),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()

	ctx, cancel := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	for _, p := range parts {
		asking.Go(func() {
			for ctx.Err() == nil {
				if _, err := p.Questions.List(ctx, query.Page{Limit: 100}); err != nil && ctx.Err() == nil &&
					!query.Again(err) && !errors.As(err, new(*query.NotLiveError)) {
					t.Errorf("list: %v", err)
				}
				await.For(t, time.Millisecond)
			}
		})
	}
	stream := rig.StartStream(t, cl, perSecond, func(n int) *kgo.Record {
		return rig.Timer(requests, target, fmt.Sprint("id", n), time.Now().Add(rand.N(1500*time.Millisecond)))
	})
	for range lives {
		await.For(t, rand.N(1200*time.Millisecond))
		parts[rand.N(len(parts))].Life().GiveUp(errors.New("the test ends this life"))
	}
	n := stream.Stop()
	in.Ready(2, limit)
	var received []history.Received
	await.Until(t, limit, "all timers fire", func() bool {
		short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		reader.PollFetches(short).EachRecord(
			func(r *kgo.Record) { received = append(received, history.Received{Record: r, At: time.Now()}) })
		return len(received) >= n
	})
	rig.Exactly(t, received, n)
	cancel()
	in.Balanced(0)
	for _, outcome := range []string{"scheduled", "fired"} {
		if got := in.Metric("waterclock_outcomes_total", "outcome", outcome); got != float64(n) {
			t.Errorf("%v timers are counted as %s, want %d", got, outcome, n)
		}
	}
}
