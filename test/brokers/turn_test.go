package brokers

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	requestPartitions = 6
	targetPartitions  = 6
	// ownStall is what a broker that becomes unresponsive costs any writer: its session
	// of 9 s (broker.session.timeout.ms, Kafka's default), then an election.
	ownStall = 10 * time.Second
	// pause is how long a broker is paused.
	pause = 15 * time.Second
	// more is what waterclock may add, and noise what this machine may.
	more, noise = 2 * time.Second, 3 * time.Second
	// recovery is how many steps, each as long as the longest silence without a fault, it
	// may take until all go on: two that others have held up are given up, say, one finds
	// what those left. busy is that silence on a machine with a load of 10 on each core.
	recovery, busy = 4, time.Second
)

// Three brokers, three instances, steady load: each broker is killed (-9) and
// restarted in turn, then one is paused for 15 s. Nothing is lost, duplicated or
// early, and the longest silence of a target partition is the brokers' own and a
// little, which is measured in what this machine needs without a fault.
// Beside it a plain producer writes to a topic of its own: what it suffers is
// the brokers' share.
func TestBrokersKilledInTurnAndOnePaused(t *testing.T) {
	runs.NeedSlow(t)
	// A coordinator of transactions waits so long for a broker to take its markers
	// before it turns to the next leader: with Kafka's 30 s the readers of what it
	// had in hand when a broker was paused wait for as long.
	c := kafkatest.Start(t, 3, kafkatest.WithProperty("request.timeout.ms", "5000"))
	requests := c.CreateTopic(t, requestPartitions, nil)
	target := c.CreateTopic(t, targetPartitions, nil, kafkatest.Topic(t)+"-target")
	plain := c.CreateTopic(t, targetPartitions, nil, kafkatest.Topic(t)+"-plain")
	var ps []*rig.Process
	for range 3 {
		ps = append(ps, rig.Start(t, rig.Arguments(c.Seeds(), requests, t.TempDir())...))
	}
	ready := func() bool {
		n := 0
		for _, p := range ps {
			status, body := p.Readyz()
			if status != http.StatusOK {
				return false
			}
			n += countLive(body)
		}
		return n == requestPartitions
	}
	await.Until(t, time.Minute, "three instances serve all partitions", ready)
	out, seen := read(t, c, target), &reader{}
	observe(t, c, targetPartitions, seen.take, target, plain)
	writePlain(t, c, plain, targetPartitions)
	l := steady(t, c, 200, requests, target)
	await.Until(t, time.Minute, "emissions on every partition", func() bool { return len(out.all()) > 300 })

	var spans []span
	fault := func(name string, do func()) {
		t.Helper()
		c.AwaitInSync(t)
		from := time.Now()
		do()
		c.AwaitInSync(t)
		await.Until(t, time.Minute, "instances ready after "+name, ready)
		fixed := time.Now()
		await.Until(t, time.Minute, "emissions on every partition after "+name,
			func() bool { return seen.partitions(target, fixed) == targetPartitions })
		await.For(t, 2*time.Second)
		spans = append(spans, span{name, from, time.Now()})
	}
	from := time.Now()
	await.For(t, 5*time.Second)
	spans = append(spans, span{"no fault", from, time.Now()})
	for i := range 3 {
		fault(fmt.Sprintf("broker %d killed and restarted", i), func() { c.Kill(i); c.Restart(i) })
	}
	fault("broker 1 paused for 15 s", func() { c.Pause(1); await.For(t, pause); c.Resume(1) })

	n := l.Stop()
	t.Cleanup(func() {
		if t.Failed() {
			explain(t, c, ps, out.all(), requests, target)
		}
	})
	await.Until(t, wellAhead+time.Minute, fmt.Sprint(n, " emissions"), func() bool { return len(out.all()) >= n })
	await.For(t, time.Second) // for what must not come
	exact(t, out.all(), n)
	received := seen.all()
	calm, _ := spans[0].silence(received, target)
	for _, s := range spans {
		longest, p := s.silence(received, target)
		own, _ := s.silence(received, plain)
		t.Logf("%-32s %6s long: longest silence of a target partition %6s (%d), of a plain writer's %6s",
			s.name, s.to.Sub(s.from).Round(time.Second), longest.Round(10*time.Millisecond), p,
			own.Round(10*time.Millisecond))
		if limit := max(own, ownStall) + more + recovery*min(calm, busy); longest > limit {
			t.Errorf("%s: silence of %s, want at most %s", s.name, longest, limit)
		}
	}
}

// writePlain writes a record to every partition of topic each 50 ms until the
// test ends.
func writePlain(t testing.TB, c *kafkatest.Cluster, topic string, partitions int32) {
	cl := c.Client(t, append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}, swift(t)...)...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				for p := range partitions {
					cl.TryProduce(ctx, &kgo.Record{Topic: topic, Partition: p}, nil)
				}
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// explain logs what came of the timers, for a test that has failed.
func explain(t testing.TB, c *kafkatest.Cluster, ps []*rig.Process, received []kafkatest.Received, requests,
	target string) {
	last := make(map[int32]time.Time)
	for _, r := range received {
		last[r.Partition] = r.At
	}
	t.Logf("%d received; last by target partition: %v", len(received), last)
	for i, p := range ps {
		t.Logf("instance %d: pending %v, parked %v, queued %v, ledger %v, missing markers %v, overdue %v s", i,
			p.Metric("waterclock_pending_timers"), p.Metric("waterclock_parked_timers"), p.Metric(
				"waterclock_queue_entries"), p.Metric("waterclock_ledger"),
			p.Metric("waterclock_missing_markers"), p.Metric("waterclock_oldest_due_seconds"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Seeds()...))
	if err != nil {
		t.Log(err)
		return
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	ends, err := adm.ListEndOffsets(ctx, requests, target)
	stable, err2 := adm.ListCommittedOffsets(ctx, requests, target)
	t.Logf("ends %v (%v), last stable offsets %v (%v)", ends, err, stable, err2)
	for p := range int32(targetPartitions) {
		dumpDuplicates(ctx, t, c, target, p, received)
	}
}

// dumpDuplicates logs what lies in a partition's log around what was emitted twice,
// markers and aborted records too.
func dumpDuplicates(ctx context.Context, t testing.TB, c *kafkatest.Cluster, topic string, p int32,
	received []kafkatest.Received) {
	const around = 15
	first := make(map[string]int64)
	from, to := int64(-1), int64(-1)
	for _, r := range received {
		was, again := first[string(r.Key)]
		switch {
		case r.Partition != p:
		case !again:
			first[string(r.Key)] = r.Offset
		default:
			if from < 0 || was < from {
				from = was
			}
			to = max(to, r.Offset)
		}
	}
	if from < 0 {
		return
	}
	from, to = max(0, from-around), to+around
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Seeds()...), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {p: kgo.NewOffset().At(from)}}))
	if err != nil {
		t.Log(err)
		return
	}
	defer cl.Close()
	for at := from; at < to && ctx.Err() == nil; {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			if at = r.Offset + 1; r.Offset > to {
				return
			}
			what := "key " + string(r.Key)
			if r.Attrs.IsControl() {
				what = fmt.Sprintf("marker, type %x, coordinator epoch %x,", r.Key, r.Value)
			}
			t.Logf("%s/%d offset %d: %s producer %d epoch %d leader epoch %d timestamp %s", topic, p, r.Offset, what,
				r.ProducerID, r.ProducerEpoch, r.LeaderEpoch, r.Timestamp.Format("15:04:05.000"))
		})
	}
}
