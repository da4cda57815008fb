package contract

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// every is the interval of most timers that recur here.
const every = time.Second

// policies are the values of timer-catch-up.
var policies = []string{"all", "latest", "none"}

// recurrence is a setup for timers that recur. Its request topic has one partition, so that timers which are due
// together are planned together.
type recurrence struct {
	*setup
	behind time.Duration // by which the owner's clock is
}

func newRecurrence(t *testing.T) *recurrence {
	t.Helper()
	return &recurrence{setup: newSetup(t, kafkatest.Shared(t), 1, 1)}
}

func (r *recurrence) config() *config.Config {
	cfg := r.Config()
	cfg.SessionTimeout = session
	return cfg
}

// request is one for the target, with further headers given as name, value.
func (r *recurrence) request(id, value string, headers ...string) *kgo.Record {
	return r.Request(id, value, append([]string{"timer-target-topic", r.Target}, headers...)...)
}

// recurring is a timer with an interval, from first on.
func (r *recurrence) recurring(id, value string, first time.Time, headers ...string) *kgo.Record {
	return r.request(id, value,
		append([]string{"timer-every", every.String(), "timer-at", millis(first)}, headers...)...)
}

// catching is such a timer of each policy, until an instant. Its ID is its policy.
func (r *recurrence) catching(first, until time.Time, policies ...string) (recs []*kgo.Record) {
	for _, policy := range policies {
		recs = append(recs, r.recurring(policy, "v", first, "timer-catch-up", policy, "timer-until", millis(until)))
	}
	return recs
}

// now is the owner's clock.
func (r *recurrence) now() time.Time { return time.Now().Add(-r.behind) }

// soon is a whole second, so far from now that what is due then is pending before.
func (r *recurrence) soon(ahead time.Duration) time.Time {
	return r.now().Add(ahead + time.Second).Truncate(time.Second)
}

// at waits for an instant of the owner's clock.
func (r *recurrence) at(when time.Time) { await.For(r, when.Sub(r.now())) }

// over waits until nothing is pending and nothing more comes, and returns what has fired.
func (r *recurrence) over() map[string][]firing {
	r.Helper()
	r.in.Balanced(0)
	r.Out.Quiet(quiet)
	return r.firings()
}

// firing is one emission. due and stamp are Unix milliseconds, stamp by the owner's clock.
type firing struct {
	number, due, stamp int64
	value              string
}

// firings are those of each timer, in the order of their log. Each is checked by itself: it is not early, and no other
// has its event.
func (r *recurrence) firings() map[string][]firing {
	r.Helper()
	by := make(map[string][]firing)
	for id, rs := range rig.Emissions(r.T, r.Out.Records()) {
		for _, e := range rs {
			by[id] = append(by[id], firing{number(e, "waterclock-occurrence"), number(e, "waterclock-due"),
				e.Timestamp.UnixMilli(), string(e.Value)})
		}
	}
	return by
}

// fires waits until each timer has fired n times.
func (r *recurrence) fires(n int, ids ...string) {
	r.Helper()
	r.until(fmt.Sprintf("%v have fired %d times", ids, n), func() bool {
		count := make(map[string]int)
		for _, e := range r.Out.Records() {
			count[e.Header("waterclock-id")]++
		}
		return !slices.ContainsFunc(ids, func(id string) bool { return count[id] < n })
	})
}

// numbered checks that occurrences are numbered by their due times, from first on, and come in order.
func (r *recurrence) numbered(id string, fs []firing, first int64) {
	r.Helper()
	last := int64(0)
	for _, f := range fs {
		if want := first + (f.number-1)*every.Milliseconds(); f.due != want || f.number <= last {
			kafkatest.Inexact(r, "%s: occurrence %d is due %d, want %d; it came behind occurrence %d", id, f.number,
				f.due, want, last)
		}
		last = f.number
	}
}

// contiguous checks that occurrences 1 to n have fired, and no other.
func (r *recurrence) contiguous(id string, fs []firing, first, n int64) {
	r.Helper()
	r.numbered(id, fs, first)
	if int64(len(fs)) != n || n > 0 && fs[n-1].number != n {
		kafkatest.Inexact(r, "%s: %d occurrences have fired, want 1 to %d: %v", id, len(fs), n, numbers(fs))
	}
}

func numbers(fs []firing) (ns []int64) {
	for _, f := range fs {
		ns = append(ns, f.number)
	}
	return ns
}

// outage is a time in which timers could not fire, by the owner's clock. It began after from, and ended
// after over and before to.
type outage struct{ from, over, to time.Time }

// caughtUp checks a timer against one of policy all that has the same due times up to until: what it lacks was missed,
// and of that it has what its policy lets fire.
func (r *recurrence) caughtUp(id, policy string, fs, all []firing, o outage, until time.Time) {
	r.Helper()
	r.numbered(id, fs, fs[0].due-(fs[0].number-1)*every.Milliseconds()) // the first one may have been missed
	if policy == "all" {
		r.contiguous(id, fs, fs[0].due, (until.UnixMilli()-fs[0].due)/every.Milliseconds()+1)
		return
	}
	has := make(map[int64]bool)
	missed := 0
	for _, f := range fs {
		has[f.due] = true
		if f.stamp < o.over.UnixMilli() || f.due >= o.over.UnixMilli() {
			continue
		}
		missed++
		if policy == "none" || f.due+every.Milliseconds() < o.over.UnixMilli() {
			r.Errorf("%s: occurrence %d, due %d, was missed and fired at %d; they could again from %d on", id, f.number,
				f.due, f.stamp, o.over.UnixMilli())
		}
	}
	lacks := 0
	for _, f := range all {
		if f.due < fs[0].due || has[f.due] {
			continue
		}
		lacks++
		overtaken := f.stamp >= f.due+every.Milliseconds()
		if during := f.due >= o.from.UnixMilli() && f.due <= o.to.UnixMilli(); !during && !overtaken {
			kafkatest.Inexact(r, "%s: the occurrence due %d has not fired, and was not missed", id, f.due)
		}
	}
	if lacks == 0 {
		r.Errorf("%s: nothing was missed: nothing is shown", id)
	}
	if last := fs[len(fs)-1]; last.due != until.UnixMilli() {
		r.Errorf("%s: the last occurrence was due %d, want %d", id, last.due, until.UnixMilli())
	}
	r.Logf("%s: occurrences %v; %d missed ones fired, %d were let go", id, numbers(fs), missed, lacks)
}

// A recurrence ends by its number of occurrences, and by an instant, which is part of it.
func TestEndByCountAndUntil(t *testing.T) {
	t.Parallel()
	r := newRecurrence(t)
	r.serve(r.config(), 1)
	first := r.soon(2 * time.Second)
	until := func(n int64, less time.Duration) string {
		return millis(first.Add(time.Duration(n-1)*every - less))
	}
	ends := map[string]struct {
		n       int64
		headers []string
	}{
		"count-1":            {1, []string{"timer-count", "1"}},
		"count-4":            {4, []string{"timer-count", "4"}},
		"until-first":        {1, []string{"timer-until", until(1, 0)}},
		"until-third":        {3, []string{"timer-until", until(3, 0)}},
		"until-before-third": {2, []string{"timer-until", until(3, time.Millisecond)}},
		"both-count":         {2, []string{"timer-count", "2", "timer-until", until(5, 0)}},
		"both-until":         {3, []string{"timer-count", "5", "timer-until", until(3, 0)}},
	}
	all := int64(0)
	for id, end := range ends {
		all += end.n
		r.Send(r.recurring(id, "v", first, end.headers...))
	}
	r.Out.WaitFor(int(all), patience)
	by := r.over()
	for id, end := range ends {
		r.contiguous(id, by[id], first.UnixMilli(), end.n)
	}
	if got := r.in.Metric("waterclock_outcomes_total", "outcome", "fired"); got != float64(all) {
		t.Errorf("%v firings are counted, want %d", got, all)
	}
}
