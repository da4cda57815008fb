package scaling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	corev1 "k8s.io/api/core/v1"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	// podStart is how long a pod takes until its process runs.
	podStart = 20 * time.Second
	// parts is the number of request partitions, and of instances at most.
	parts = 8
	// least is how many instances there are at least. The chart's default.
	least = 2
	// soon and late bound the time between sending a timer and when it is due.
	soon, late = time.Second, 2 * time.Second
	// firingInterval is longer than the default: an instance that fires some thousand timers a second would else use
	// half of its processor time for steps, of which there are as many at 500.
	firingInterval = 250 * time.Millisecond
	// lateAtMost bounds the p99. A partition that moves is silent for half a second, and ten times as often as in a
	// cluster.
	lateAtMost = 2 * time.Second
)

// A plan is what TestInstances has the instances do. Its times are real ones, a tenth of what they stand for.
type plan struct {
	one           float64 // timers a second that count as one instance's share
	low, high     float64 // timers a second
	begins, rises time.Duration
	falls, ends   time.Duration
	burst         int           // timers that are scheduled at the beginning
	due           time.Duration // when they are
}

// thePlan is the full run, or the short one that only goes up.
func thePlan() plan {
	p := plan{one: 5_000, low: 500, high: 20_000, begins: 5 * time.Second, rises: 5 * time.Second, falls: time.Hour,
		ends: 35 * time.Second}
	if runs.Slow() {
		p.begins, p.rises, p.falls = 15*time.Second, 20*time.Second, 100*time.Second
		p.burst, p.due, p.ends = 120_000, 6*time.Minute, 555*time.Second
	}
	return p
}

// rate is how many timers a second are sent.
func (p *plan) rate(at time.Duration) float64 {
	part := min(1, float64(at-p.begins)/float64(p.rises), float64(p.falls-at)/float64(10*time.Second))
	return p.low + (p.high-p.low)*max(0, part)
}

// A statefulSet keeps as many processes as it is told, with the least ordinals and a directory for each.
type statefulSet struct {
	t           *testing.T
	args        func(directory string, ordinal int) []string
	directories []string // by ordinal; they stay when instances go
	pods        []*pod
	listed      int // how many Prometheus scrapes
}

type pod struct {
	*rig.Process
	starts time.Time
}

// reconcile starts and stops processes.
func (s *statefulSet) reconcile(n int, p *prometheus) {
	for len(s.pods) < n {
		s.pods = append(s.pods, &pod{starts: time.Now().Add(podStart / pace)})
		if len(s.directories) < len(s.pods) {
			s.directories = append(s.directories, s.t.TempDir())
		}
	}
	leaving := s.pods[n:]
	s.pods = s.pods[:n]
	var addresses []string
	for i, one := range s.pods {
		if one.Process == nil && time.Now().After(one.starts) {
			one.Process = rig.Start(s.t, s.args(s.directories[i], i)...)
		}
		if one.Process != nil {
			addresses = append(addresses, one.Addr())
		}
	}
	if len(addresses) != s.listed {
		p.scrape(s.t, addresses...)
		s.listed = len(addresses)
	}
	for _, one := range leaving {
		if one.Process == nil {
			continue
		}
		one.Term()
		if code := one.Exit(time.Minute); code != 0 {
			s.t.Errorf("an instance that is scaled in: exit %d", code)
		}
	}
}

// ready is how many instances serve partitions.
func (s *statefulSet) ready() (n int) {
	for _, one := range s.pods {
		if one.Process == nil {
			continue
		}
		if _, body := one.Readyz(); strings.Contains(body, `"live"`) {
			n++
		}
	}
	return n
}

// traffic schedules timers and books what comes of them.
type traffic struct {
	requests, target string
	cl               *kgo.Client
	book             *history.Book

	n    int // timers so far; of the goroutine that sends
	once sync.Once
	err  error // the first that could not be sent
}

// send schedules one more timer.
func (tr *traffic) send(due time.Time) {
	due = due.Truncate(time.Millisecond)
	tr.book.Schedule(due.UnixMilli())
	tr.cl.Produce(context.Background(), rig.Timer(tr.requests, tr.target, fmt.Sprint("t", tr.n), due),
		func(_ *kgo.Record, err error) {
			if err != nil {
				tr.once.Do(func() { tr.err = err })
			}
		})
	tr.n++
}

// run sends timers at a rate until ctx ends.
func (tr *traffic) run(ctx context.Context, rate func(time.Duration) float64) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	begin, last, owed := time.Now(), time.Now(), 0.0
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			for owed += rate(now.Sub(begin)) * now.Sub(last).Seconds(); owed >= 1; owed-- {
				tr.send(now.Add(soon + time.Duration(tr.n*7919)*time.Microsecond%(late-soon)))
			}
			last = now
		}
	}
}

// TestInstances has Kubernetes' controller scale real instances by what Prometheus says of them, while timers fire. The
// chart's times are divided by ten: a minute is six seconds. So that many fit on one machine an instance counts as full
// at a few thousand timers a second: cores is what that takes here, which is measured first. With
// WATERCLOCK_SLOW_TESTS=1 the rate goes up fortyfold and down again, and then comes a burst that was scheduled an hour
// ahead; that takes ten minutes.
func TestInstances(t *testing.T) {
	pl := thePlan()
	c := kafkatest.Start(t, 1, kafkatest.ApacheDefaults())
	rig.Binary(t)
	requests, target := c.CreateTopic(t, parts, nil), c.CreateTopic(t, parts, nil)
	tr := &traffic{requests: requests, target: target, book: history.NewBook(history.Timers{Prefix: "t"}, 4_000_000)}
	tr.cl = c.Client(t, kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.ProducerLinger(5*time.Millisecond),
		kgo.MaxBufferedRecords(200_000))
	rig.Receive(t, c, tr.book, target)
	values := object{"prometheus": "http://prometheus", "max": parts, "lag": int(pl.one / 2),
		"due": int(pl.one * late.Seconds())}
	p := startPrometheus(t, jobOf(t, render(t, requests, values)))
	values["prometheus"] = p.url

	set := &statefulSet{t: t, args: func(directory string, ordinal int) []string {
		return rig.Arguments(c.Seeds(), requests, directory, "--instance-id", fmt.Sprint("waterclock-", ordinal),
			"--memory", "256MiB", "--firing-interval", firingInterval.String())
	}}
	await.Until(t, time.Minute, "two instances serve",
		func() bool { set.reconcile(least, p); return set.ready() == least })
	values["cores"] = fmt.Sprintf("%.4f", calibrate(t, tr, set, pl.one))
	o := render(t, requests, values)
	o.faster(t, pace)
	t.Logf("an instance counts as full at %.0f timers a second: cores %s; lag %d, due %d; %d to %d instances", pl.one,
		values["cores"], values["lag"], values["due"], o.Spec.MinReplicaCount, o.Spec.MaxReplicaCount)

	begin := time.Now()
	for i := range pl.burst {
		tr.send(begin.Add(pl.due + time.Duration(i)*time.Minute/pace/time.Duration(pl.burst)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	sending.Go(func() { tr.run(ctx, pl.rate) })
	defer sending.Wait()
	defer cancel()

	w := &workload{n: least}
	wanted, ask := keda(t, o, p, w)
	said := make(chan string, 100)
	stop := autoscale(t.Context(), o, wanted, w, syncPeriod/pace, ask, func(e *corev1.Event) {
		select {
		case said <- e.Reason + ": " + e.Message:
		default:
		}
	})
	defer stop()
	before := 0 // instances that served when the burst came
	told := time.Duration(-1)
	await.Until(t, pl.ends+time.Minute, "the plan ends", func() bool {
		set.reconcile(int(w.replicas()), p)
		since := time.Since(begin)
		select {
		case text := <-said:
			t.Logf("minute %.1f: %s", since.Minutes()*pace, text)
		default:
		}
		if since > told {
			told += 5 * time.Minute / pace
			var values []string
			for i, m := range wanted {
				v, err := ask(m.External.Metric.Name)
				values = append(values, fmt.Sprintf("%s %.3g of %s", o.Spec.Triggers[i].Name, v/float64(w.replicas()),
					m.External.Target.AverageValue))
				if err != nil {
					t.Errorf("%s: %v", o.Spec.Triggers[i].Name, err)
				}
			}
			t.Logf("minute %.1f: %d instances, %.0f timers a second; for each: %s", since.Minutes()*pace, w.replicas(),
				pl.rate(since), strings.Join(values, ", "))
		}
		if pl.burst > 0 && since > pl.due-time.Second && before == 0 {
			before = set.ready()
		}
		return since > pl.ends
	})
	stop()
	cancel()
	sending.Wait()
	if err := errors.Join(tr.cl.Flush(t.Context()), tr.err); err != nil {
		t.Fatal(err)
	}
	tr.book.Close()
	select {
	case <-tr.book.Full():
	case <-time.After(time.Minute):
	}
	if err := tr.book.Counts().Err("timers"); err != nil {
		kafkatest.Inexact(t, "%v", err)
	}
	if p99 := pl.report(t, tr.book, begin); p99 > lateAtMost {
		t.Errorf("a hundredth of the timers came more than %s late", p99)
	}
	pl.judge(t, o, w.history(), before)
}

// calibrate returns how many cores an instance uses at so many timers a second.
func calibrate(t *testing.T, tr *traffic, set *statefulSet, one float64) float64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	sending.Go(func() { tr.run(ctx, func(time.Duration) float64 { return one * least }) })
	defer sending.Wait()
	defer cancel()
	used := func() (n float64) {
		for _, one := range set.pods {
			n += one.Metric("process_cpu_seconds_total")
		}
		return n
	}
	await.For(t, 2*late) // until as many fire as are sent
	begin, before := time.Now(), used()
	await.For(t, 6*time.Second)
	return (used() - before) / time.Since(begin).Seconds() / least
}

// report logs how late timers were, in each part of the run, and returns the p99 of all.
func (p *plan) report(t *testing.T, book *history.Book, begin time.Time) (p99 time.Duration) {
	t.Helper()
	names := []string{"measuring", "low", "up", "high", "down", "burst", "down again"}
	groups := make([][]time.Duration, len(names))
	var all []time.Duration
	book.Each(func(due int64, byReceipt, _ int32) {
		at, took := time.UnixMilli(due).Sub(begin), time.Duration(byReceipt)*time.Microsecond
		group := 0
		for i, from := range []time.Duration{0, p.begins, p.begins + p.rises + 3*time.Minute/pace, p.falls, p.due,
			p.due + time.Minute/pace} {
			if at >= from && (i < 4 || p.burst > 0) {
				group = i + 1
			}
		}
		groups[group], all = append(groups[group], took), append(all, took)
	})
	for i, late := range append(groups, all) {
		if len(late) == 0 {
			continue
		}
		slices.Sort(late)
		p99 = late[len(late)*99/100]
		t.Logf("%-10s  %9d timers, late by p50 %6s, p99 %6s, at most %6s", append(names, "all")[i], len(late),
			late[len(late)/2].Round(time.Millisecond),
			p99.Round(time.Millisecond), late[len(late)-1].Round(time.Millisecond))
	}
	return p99
}

// judge looks at how the number of instances changed.
func (p *plan) judge(t *testing.T, o *scaledObject, changes []change, before int) {
	t.Helper()
	most, last, turned := o.Spec.MinReplicaCount, o.Spec.MinReplicaCount, 0
	for _, c := range changes {
		if c.to < o.Spec.MinReplicaCount || c.to > o.Spec.MaxReplicaCount {
			t.Errorf("%d instances", c.to)
		}
		most, last = max(most, c.to), c.to
	}
	if p.burst > 0 {
		turned = 3
		if before < 6 {
			t.Errorf("%d instances served when the burst came, which was known an hour ahead", before)
		}
		// an idle instance takes half of cores here: on a busy machine one may seem to be needed
		if last > o.Spec.MinReplicaCount+1 {
			t.Errorf("%d instances in the end", last)
		}
	}
	if enough := int32(p.high / p.one * 3 / 4); most < enough {
		t.Errorf("%d instances at most, %d at least would be needed", most, enough)
	}
	// The controller looks every 15 s, so two answers of KEDA may be that much closer to each other.
	if d := soonest(changes); d < (time.Minute-syncPeriod)/pace {
		t.Errorf("two changes within %s, a tenth of what they stand for", d)
	}
	if turns(changes) != turned {
		t.Errorf("the number turned %d times, want %d: %v", turns(changes), turned, changes)
	}
}
