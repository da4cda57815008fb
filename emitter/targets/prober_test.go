package targets

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

// fakeProber probes a kfake cluster with a topic "t" of one partition.
func fakeProber(t *testing.T) (*Prober, *kadm.Client, *kgo.Client) {
	t.Helper()
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	opts := []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}
	cl := kafkatest.Client(t, append(opts, kgo.ConsumeTopics("t"), kgo.FetchIsolationLevel(kgo.ReadUncommitted()))...)
	return proberOf(opts, NewMetadata(cl, MetadataOptions{MissingAfter: 1})), kadm.NewClient(cl), cl
}

// proberOf returns a prober whose transactions are not recorded.
func proberOf(client []kgo.Opt, m *Metadata) *Prober {
	return NewProber(ProberOptions{
		Client: client, IDPrefix: "p/", Metadata: m, Now: time.Now,
		Probed: func(string, int64, int16, timer.TopicPartition, bool) {},
	})
}

// A compacted topic refuses a record without a key, so a probe has one: otherwise a compacted target would be
// unhealthy forever.
func TestProbeHasAKey(t *testing.T) {
	p, _, cl := fakeProber(t)
	must(t, p.Probe(t.Context(), timer.TopicPartition{Topic: "t", Partition: 0}))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	recs := cl.PollFetches(ctx).Records()
	if len(recs) != 1 || len(recs[0].Key) == 0 {
		t.Errorf("%d records, want one with a key: %+v", len(recs), recs)
	}
}

// Emissions that wait for a target that is gone become dead letters: they must not wait any longer.
func TestProbeOfAMissingTarget(t *testing.T) {
	p, adm, _ := fakeProber(t)
	beyond := timer.TopicPartition{Topic: "t", Partition: 7}
	if err := p.Probe(t.Context(), beyond); !errors.Is(err, errNoLeader) {
		t.Errorf("a partition that the topic does not have, yet: %v", err)
	}
	if err := p.Probe(t.Context(), beyond); !RefusedForGood(err) {
		t.Errorf("a partition that the topic does not have: %v", err)
	}
	if _, err := adm.DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if err := p.Probe(t.Context(), timer.TopicPartition{Topic: "t", Partition: 0}); !RefusedForGood(err) {
		t.Errorf("a topic that was deleted: %v", err)
	}
}

// A target that is known to have no leader is not probed by a transaction: brokers would keep its ID, and
// there may be thousands of such targets. The time between two checks does not grow either, because they cost
// nothing.
func TestProbeOfALeaderlessTarget(t *testing.T) {
	p, _, _ := fakeProber(t)
	answer := func(leader int32) {
		p.o.Metadata.mu.Lock()
		defer p.o.Metadata.mu.Unlock()
		p.o.Metadata.topics["t"] = &cachedTopic{TopicInfo: TopicInfo{Leader: []bool{leader >= 0}}, fetched: time.Now(),
			maxBytes: 1}
	}
	answer(-1)
	h := newHealth(p.Probe)
	h.Suspect(timer.TopicPartition{Topic: "t", Partition: 0})
	now := time.Now()
	h.o.Now = func() time.Time { return now }
	for i := range 20 {
		h.Round(t.Context(), func(probe func()) { probe() })
		now = now.Add(breakerMin)
		if h.Allow(timer.TopicPartition{Topic: "t", Partition: 0}, nil) {
			t.Fatalf("healthy after look %d", i)
		}
	}
	if n := p.serial; n > 0 {
		t.Errorf("%d transactional IDs for a target without leader", n)
	}
	answer(0)
	h.Round(t.Context(), func(probe func()) { probe() })
	if n := newPatron(h).passes(timer.TopicPartition{Topic: "t", Partition: 0}, 10); n != 1 || p.serial != 1 {
		t.Errorf("%d pass with a leader, %d probes", n, p.serial)
	}
}

// A target that rejects the probe permanently has answered: emissions that wait for it pass, and are rejected or
// accepted on their own merits.
func TestBreakerOfATargetThatRefuses(t *testing.T) {
	for _, why := range []error{kerr.UnknownTopicOrPartition, kerr.TopicAuthorizationFailed, kerr.InvalidRecord} {
		h := newHealth(nil)
		var said strings.Builder
		h.o.Logger = slog.New(slog.NewTextHandler(&said, nil))
		h.Trip(map[timer.TopicPartition]error{one: late})
		h.probed(one, why)
		if !strings.Contains(said.String(), "become dead letters") || strings.Contains(said.String(), "healthy again") {
			t.Errorf("%v: it is said that %s", why, said.String())
		}
		if n := newPatron(h).passes(one, 100); n != 100 || !h.Allow(one, nil) {
			t.Errorf("%v: %d of 100 may pass", why, n)
		}
	}
	h := newHealth(nil)
	h.Trip(map[timer.TopicPartition]error{one: late})
	h.probed(one, errors.New("away"))
	if n := newPatron(h).passes(one, 100); n != 0 {
		t.Errorf("%d pass although the probe failed", n)
	}
}

// A target without waiting emissions is healthy once it responds: its timers were cancelled, or went to other
// partitions.
func TestBreakerWithoutWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHealth(func(context.Context, timer.TopicPartition) error { return nil })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = h.Run(ctx) }()
		h.Trip(map[timer.TopicPartition]error{one: late, two: kerr.LeaderNotAvailable})
		h.Trip(map[timer.TopicPartition]error{one: late})
		w := newPatron(h)
		w.Wait(two) // it never passes
		time.Sleep(2 * idleFor)
		synctest.Wait()
		if !h.Allow(one, nil) {
			t.Error("still unhealthy, a long time after the probe")
		}
		if h.Allow(two, nil) {
			t.Error("healthy, though something waits for it")
		}
		w.Close()
		time.Sleep(2 * idleFor)
		synctest.Wait()
		if !h.AllHealthy() {
			t.Error("still unhealthy, a long time after who waited for it has gone")
		}
		cancel()
		<-done
	})
}

// A probe that could not begin a transaction says nothing about the target: it does not delay the next one.
func TestProbeThatWasNotTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, opts, cl := kafkatest.Bubble(t, 1, "t")
		p := proberOf(opts, NewMetadata(cl, MetadataOptions{}))
		var tried atomic.Int32
		c.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			tried.Add(1)
			resp := r.ResponseKind().(*kmsg.InitProducerIDResponse)
			resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
			return resp, nil, true
		})
		to := timer.TopicPartition{Topic: "t", Partition: 0}
		h := newHealth(p.Probe)
		now := time.Now()
		h.o.Now = func() time.Time { return now }
		h.Suspect(to)
		for range 4 {
			h.Round(t.Context(), func(probe func()) { probe() })
			now = now.Add(breakerMin)
		}
		if n := tried.Load(); n != 4 || p.serial != 1 || h.Allow(to, nil) {
			t.Errorf("%d probes in %s, unhealthy %v", n, 4*breakerMin, h.Unhealthy())
		}
	})
}

// Targets without a leader, perhaps thousands, are checked but not tried: they do not delay the probe of a target that
// may be healthy.
func TestProbesDoNotWaitForLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tried := make(chan struct{})
		h := newHealth(func(_ context.Context, p timer.TopicPartition) error {
			if p != one {
				return errNoLeader
			}
			close(tried)
			return nil
		})
		for i := range int32(2000) {
			h.Suspect(timer.TopicPartition{Topic: "leaderless", Partition: i})
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = h.Run(ctx) }()
		time.Sleep(breakerMin)
		h.Suspect(one)
		begun := time.Now()
		<-tried
		if took := time.Since(begun); took > probeTick {
			t.Errorf("tried after %s", took)
		}
		cancel()
		<-done
	})
}

// Emissions that wait for a target that the service may no longer use become dead letters, like emissions that fall due
// for it now: they must not wait any longer.
func TestProbeOfAForbiddenTarget(t *testing.T) {
	p, _, _ := fakeProber(t)
	to := timer.TopicPartition{Topic: "t", Partition: 0}
	h := newHealth(p.Probe)
	h.Trip(map[timer.TopicPartition]error{to: late})
	h.breakers[to].next = time.Now()
	p.o.Metadata.topics["t"] = &cachedTopic{TopicInfo: TopicInfo{Err: kerr.TopicAuthorizationFailed},
		fetched: time.Now()}
	h.Round(t.Context(), func(probe func()) { probe() })
	if n := newPatron(h).passes(to, 10); n != 10 {
		t.Errorf("%d of 10 may pass, to be refused", n)
	}
}

// refusedRecords is the answer to a produce request whose records are rejected permanently.
func refusedRecords(r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ProduceRequest)
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, rt := range req.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = rt.Topic, rt.TopicID
		for _, rp := range rt.Partitions {
			part := kmsg.NewProduceResponseTopicPartition()
			part.Partition, part.ErrorCode = rp.Partition, kerr.InvalidRecord.Code
			topic.Partitions = append(topic.Partitions, part)
		}
		resp.Topics = append(resp.Topics, topic)
	}
	return resp
}

// Brokers keep each transactional ID for a week. However often partitions are probed, and however that ends,
// there is one ID for each unhealthy partition. IDs of successful probes are shared by all.
func TestProbesUseTheirIDsAgain(t *testing.T) {
	const partitions, times = 3, 5
	c, targets := fakeTargets(t, partitions)
	p := proberOf([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}, targets)
	var mu sync.Mutex
	ids, refuse := make(map[string]bool), false
	c.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		ids[*r.(*kmsg.InitProducerIDRequest).TransactionalID] = true
		return nil, nil, false
	})
	c.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		mu.Lock()
		defer mu.Unlock()
		if !refuse {
			return nil, nil, false
		}
		return refusedRecords(r), nil, true
	})
	probe := func(wrong bool) int {
		t.Helper()
		mu.Lock()
		refuse = wrong
		mu.Unlock()
		for range times {
			for n := range int32(partitions) {
				if err := p.Probe(t.Context(), timer.TopicPartition{Topic: "t", Partition: n}); (err != nil) != wrong {
					t.Fatalf("a probe, to be refused is %v: %v", wrong, err)
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		return len(ids)
	}
	if n := probe(false); n != 1 {
		t.Errorf("%d IDs of probes that get through, want 1", n)
	}
	if n := probe(true); n != partitions {
		t.Errorf("%d IDs with probes that do not, want %d", n, partitions)
	}
	if n := probe(false); n != partitions || len(p.free) != partitions || len(p.stuck) != 0 {
		t.Errorf("%d IDs behind that, %d free, want %d", n, len(p.free), partitions)
	}
}

// Problems of a probe's own transaction say nothing about its target: neither an open transaction of the previous
// probe, nor a transaction that is not ended after its write.
func TestProbesOwnTransactionIsNotTheTargets(t *testing.T) {
	c, targets := fakeTargets(t, 2)
	p := proberOf([]kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}, targets)
	var refused atomic.Int32 // the kind of request that the coordinator rejects
	refuse := func(k kmsg.Key, answer func(kmsg.Request) kmsg.Response) {
		c.ControlKey(int16(k), func(r kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if refused.Load() != int32(k) {
				return nil, nil, false
			}
			return answer(r), nil, true
		})
	}
	refuse(kmsg.EndTxn, func(r kmsg.Request) kmsg.Response {
		resp := r.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		return resp
	})
	refuse(kmsg.InitProducerID, func(r kmsg.Request) kmsg.Response {
		resp := r.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		return resp
	})
	refuse(kmsg.Produce, refusedRecords)
	zero, other := timer.TopicPartition{Topic: "t"}, timer.TopicPartition{Topic: "t", Partition: 1}

	refused.Store(int32(kmsg.EndTxn))
	if err := p.Probe(t.Context(), zero); err != nil {
		t.Errorf("the target took the probe, whose transaction is not ended: %v", err)
	}
	refused.Store(int32(kmsg.Produce))
	if err := p.Probe(t.Context(), zero); err == nil || errors.Is(err, errNotTried) {
		t.Errorf("the target refused the probe: %v", err)
	}
	refused.Store(int32(kmsg.InitProducerID))
	if err := p.Probe(t.Context(), zero); !errors.Is(err, errNotTried) {
		t.Errorf("the last probe's transaction is not ended: %v, want %v", err, errNotTried)
	}
	if err := p.Probe(t.Context(), other); !errors.Is(err, errNotTried) {
		t.Errorf("no transaction can be begun: %v", err)
	}
}

// IDs of failed probes are kept for their partitions while those are probed or checked, and no longer: a
// partition that is not probed any more has no breaker.
func TestIDsOfFailedProbesAreNotKeptForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := proberOf(nil, nil)
		at := func(n int) timer.TopicPartition { return timer.TopicPartition{Topic: "t", Partition: int32(n)} }
		const many = 1000
		for n := range many {
			p.give(at(n), p.take(at(n)), false)
		}
		for range 3 {
			time.Sleep(leftFor - time.Minute)
			p.looked(at(0)) // it has no leader, so it is not tried
			x := p.take(at(1))
			p.give(at(1), x, false)
		}
		if len(p.stuck) != 2 || len(p.free) != many-2 || p.serial != many {
			t.Errorf("%d left, %d free of %d", len(p.stuck), len(p.free), p.serial)
		}
		for n := range many {
			p.give(at(many+n), p.take(at(many+n)), false)
		}
		if p.serial != many+2 {
			t.Errorf("%d IDs were made, want %d", p.serial, many+2)
		}
	})
}

// A probe ends even if brokers do not answer: a Health has maxProbes places, and waits for probes when it stops.
func TestProbeEndsWithoutAnswers(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.ApiVersions, kmsg.Metadata, kmsg.DescribeConfigs, kmsg.FindCoordinator,
		kmsg.InitProducerID, kmsg.AddPartitionsToTxn, kmsg.Produce, kmsg.EndTxn} {
		for what, known := range map[string]bool{"the target is known": true, "the target is not known": false} {
			t.Run(key.Name()+", "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, opts, cl := kafkatest.Bubble(t, 2, "t")
					m := NewMetadata(cl, MetadataOptions{})
					if known {
						must(t, m.Refresh(t.Context(), "t"))
					}
					over := make(chan struct{})
					t.Cleanup(func() { close(over) })
					c.ControlKey(key.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
						c.KeepControl()
						c.SleepControl(func() { <-over })
						return nil, nil, false
					})
					start := time.Now()
					err := proberOf(opts, m).Probe(t.Context(), timer.TopicPartition{Topic: "t"})
					if took := time.Since(start); took > EmissionDeadline+probeEnd+lookupTimeout {
						t.Errorf("it took %s: %v", took, err)
					}
				})
			})
		}
	}
}
