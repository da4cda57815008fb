package emitter

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fakeProber probes a kfake cluster with a topic "t" of one partition.
func fakeProber(t *testing.T) (*Prober, *kadm.Client, *kgo.Client) {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	opts := []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}
	cl, err := kgo.NewClient(append(opts, kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadUncommitted()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	log := slog.New(slog.DiscardHandler)
	m := NewMarkers(cl, NewTargets(cl, false), "g", log, NewMetrics(prometheus.NewRegistry()))
	return NewProber(opts, "g", "p", m), kadm.NewClient(cl), cl
}

// A compacted topic refuses a record without a key, so a probe has one: a target
// that is compacted would be sick for ever.
func TestProbeHasAKey(t *testing.T) {
	p, _, cl := fakeProber(t)
	if err := p.Probe(t.Context(), TargetPartition{"t", 0}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	recs := cl.PollFetches(ctx).Records()
	if len(recs) != 1 || len(recs[0].Key) == 0 {
		t.Errorf("%d records, want one with a key: %+v", len(recs), recs)
	}
}

// What waits for a target that is gone becomes dead letters: it must not wait on.
func TestProbeOfWhatIsGone(t *testing.T) {
	p, adm, _ := fakeProber(t)
	if err := p.Probe(t.Context(), TargetPartition{"t", 7}); !refusedForGood(err) {
		t.Errorf("a partition that the topic does not have: %v", err)
	}
	if _, err := adm.DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if err := p.Probe(t.Context(), TargetPartition{"t", 0}); !refusedForGood(err) {
		t.Errorf("a topic that was deleted: %v", err)
	}
}

// A target that refuses the probe for good answers: what waits for it passes, and
// is refused, or not, for itself.
func TestBreakerOfATargetThatRefuses(t *testing.T) {
	for _, why := range []error{kerr.UnknownTopicOrPartition, kerr.TopicAuthorizationFailed, kerr.InvalidRecord} {
		h := NewHealth(nil, slog.New(slog.DiscardHandler))
		h.Accuse(map[TargetPartition]error{one: late})
		h.probed(one, why)
		if n := h.Grant(one, 100); n != 100 || !h.Allow(one) {
			t.Errorf("%v: %d of 100 may pass", why, n)
		}
	}
	h := NewHealth(nil, slog.New(slog.DiscardHandler))
	h.Accuse(map[TargetPartition]error{one: late})
	h.probed(one, errors.New("away"))
	if n := h.Grant(one, 100); n != 0 {
		t.Errorf("%d pass although the probe failed", n)
	}
}

// A target that answers again, and that nothing waits for, is well: its timers
// were cancelled, or went to other partitions.
func TestBreakerThatNobodyWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHealth(func(context.Context, TargetPartition) error { return nil }, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = h.Run(ctx) }()
		h.Accuse(map[TargetPartition]error{one: late, two: kerr.LeaderNotAvailable})
		h.Accuse(map[TargetPartition]error{one: late})
		for range 200 { // something waits for two, and never passes
			time.Sleep(probeTick)
			h.Grant(two, 1)
		}
		synctest.Wait()
		if !h.Allow(one) {
			t.Error("still sick, a long time after the probe")
		}
		if h.Allow(two) {
			t.Error("well, though something waits for it")
		}
		cancel()
		<-done
	})
}
