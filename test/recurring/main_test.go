// Package recurring shows on a real broker that recurring timers fire exactly the
// occurrences that they should, each once, whatever happens meanwhile: a kill, a
// restart, a replacement, a target that takes nothing, a clock that is set.
package recurring

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// The slow one measures how late timers are: nobody else has brokers meanwhile.
func TestMain(m *testing.M) {
	if runs.Slow() {
		kafkatest.MainAlone(m)
	}
	kafkatest.Main(m)
}

const (
	// patience bounds what must happen, on a machine that has other work.
	patience = 60 * time.Second
	// every is the interval of most timers here.
	every = time.Second
	// quiet is how long a test looks on for what must not come.
	quiet = 2 * every
	// session is how long a member that was killed is waited for.
	session = 6 * time.Second
)

// policies are the values of timer-catch-up.
var policies = []string{"all", "latest", "none"}

// setup has a request topic of one partition, so that timers which are due together
// are planned together.
type setup struct {
	rig.Setup
	behind time.Duration // by which the owner's clock is
}

func newSetup(t *testing.T) *setup {
	t.Helper()
	return &setup{Setup: *rig.NewSetup(t, kafkatest.Shared(t), 1, 1)}
}

func (s *setup) config() *config.Config {
	cfg := s.Config()
	cfg.SessionTimeout = session
	return cfg
}

// request is one for the target, with further headers given as name, value.
func (s *setup) request(id, value string, headers ...string) *kgo.Record {
	return s.Request(id, value, append([]string{"timer-target-topic", s.Target}, headers...)...)
}

// recurring is a timer with an interval, from first on.
func (s *setup) recurring(id, value string, first time.Time, headers ...string) *kgo.Record {
	return s.request(
		id, value, append([]string{"timer-every", every.String(), "timer-at", millis(first)}, headers...)...)
}

func millis(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }

// now is the owner's clock.
func (s *setup) now() time.Time { return time.Now().Add(-s.behind) }

// soon is a whole second, so far from now that what is due then is pending before.
func (s *setup) soon(ahead time.Duration) time.Time {
	return s.now().Add(ahead + time.Second).Truncate(time.Second)
}

// at waits for an instant of the owner's clock.
func (s *setup) at(when time.Time) { await.For(s, when.Sub(s.now())) }

// firing is one emission. due and stamp are Unix milliseconds, stamp by the owner's
// clock.
type firing struct {
	number, due, stamp int64
	value              string
}

// firings are those of each timer, in the order of their log. Each is checked by
// itself: it is not early, and no other has its event.
func (s *setup) firings() map[string][]firing {
	s.Helper()
	by := make(map[string][]firing)
	for id, rs := range rig.Emissions(s.T, s.Out.Records()) {
		for _, r := range rs {
			by[id] = append(by[id], firing{s.number(r, "waterclock-occurrence"), s.number(r, "waterclock-due"),
				r.Timestamp.UnixMilli(), string(r.Value)})
		}
	}
	return by
}

func (s *setup) number(r kafkatest.Received, header string) int64 {
	s.Helper()
	n, err := strconv.ParseInt(r.Header(header), 10, 64)
	if err != nil {
		s.Fatalf("header %s of an emission of %s: %v", header, r.Key, err)
	}
	return n
}

// fired waits until the timer has fired n times.
func (s *setup) fired(id string, n int) {
	s.Helper()
	await.Until(s, patience, fmt.Sprintf("%s has fired %d times", id, n), func() bool { return s.count(id) >= n })
}

func (s *setup) count(id string) (n int) {
	for _, r := range s.Out.Records() {
		if r.Header("waterclock-id") == id {
			n++
		}
	}
	return n
}

// numbered checks that occurrences are numbered by their due times, from first on, and
// come in order.
func (s *setup) numbered(id string, fs []firing, first int64) {
	s.Helper()
	last := int64(0)
	for _, f := range fs {
		if want := first + (f.number-1)*every.Milliseconds(); f.due != want || f.number <= last {
			kafkatest.Inexact(s, "%s: occurrence %d is due %d, want %d; it came behind occurrence %d", id, f.number,
				f.due, want, last)
		}
		last = f.number
	}
}

// contiguous checks that occurrences 1 to n have fired, and no other.
func (s *setup) contiguous(id string, fs []firing, first, n int64) {
	s.Helper()
	s.numbered(id, fs, first)
	if int64(len(fs)) != n || n > 0 && fs[n-1].number != n {
		kafkatest.Inexact(s, "%s: %d occurrences have fired, want 1 to %d: %v", id, len(fs), n, numbers(fs))
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

// caughtUp checks a timer against one of policy all that has the same due times up to
// until: what it lacks was missed, and of that it has what its policy lets fire.
func (s *setup) caughtUp(id, policy string, fs, all []firing, o outage, until time.Time) {
	s.Helper()
	s.numbered(id, fs, fs[0].due)
	if policy == "all" {
		s.contiguous(id, fs, fs[0].due, (until.UnixMilli()-fs[0].due)/every.Milliseconds()+1)
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
			s.Errorf("%s: occurrence %d, due %d, was missed and fired at %d; they could again from %d on", id, f.number,
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
			kafkatest.Inexact(s, "%s: the occurrence due %d has not fired, and was not missed", id, f.due)
		}
	}
	if lacks == 0 {
		s.Errorf("%s: nothing was missed: nothing is shown", id)
	}
	if last := fs[len(fs)-1]; last.due != until.UnixMilli() {
		s.Errorf("%s: the last occurrence was due %d, want %d", id, last.due, until.UnixMilli())
	}
	s.Logf("%s: occurrences %v; %d missed ones fired, %d were let go", id, numbers(fs), missed, lacks)
}
