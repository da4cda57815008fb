package emitter

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
)

// paced is a source whose entries fall due or are handed over at given moments.
type paced struct {
	mu     sync.Mutex
	ready  []time.Time // in order
	sealed []paceStep
	refuse int // this many steps are aborted by their Check
	calls  int // how many entries of the next step have callers that wait
	told   func(calls int)
}

// paceStep has the entries of one step: when it was sealed, and since when each entry was ready.
type paceStep struct {
	at    time.Time
	since []time.Time
}

func (p *paced) add(at ...time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ready = append(p.ready, at...)
	slices.SortFunc(p.ready, time.Time.Compare)
}

func (p *paced) Seal(step string, room *Room) *Share {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, now := 0, time.Now()
	for n < min(len(p.ready), room.Entries) && !p.ready[n].After(now) {
		n++
	}
	if n == 0 {
		return nil
	}
	room.Entries -= n
	took := p.ready[:n:n]
	p.ready = p.ready[n:]
	p.sealed = append(p.sealed, paceStep{now, took})
	refuse := p.refuse > 0
	if refuse {
		p.refuse--
	}
	calls := p.calls
	p.calls = 0
	share := &Share{
		Token: fakeToken{}, Offset: Offset{Topic: "r"},
		Records: []*kgo.Record{{Topic: "log", Key: []byte("k"), Value: []byte(step)}},
		Check: func(partlog.Epoch) error {
			if refuse {
				return errors.New("refused")
			}
			return nil
		},
		Done: func(o Outcome) {
			if o != Committed {
				p.add(took...)
			}
		},
	}
	if done := share.Done; calls > 0 {
		share.Done = func(o Outcome) {
			done(o)
			share.Calls = calls
			p.mu.Lock()
			defer p.mu.Unlock()
			p.told(calls)
		}
	}
	return share
}

func (p *paced) Wait() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.ready) == 0 {
		return maxSleep
	}
	return max(0, time.Until(p.ready[0]))
}

// steps are those so far.
func (p *paced) steps() []paceStep {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sealed)
}

// paceInterval is longer than any step of a fakeLane.
const paceInterval = time.Second

// pacedLane runs a lane with an interval and one source, in a bubble, until stop.
func pacedLane(t *testing.T, interval time.Duration) (l *testLane, s *paced, stop func()) {
	t.Helper()
	_, l = fakeLane(t)
	l.pace.interval = interval
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.lanes.Run(ctx) }()
	time.Sleep(10 * paceInterval) // until its clients are open
	s = &paced{}
	l.roster.Add(s)
	synctest.Wait()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return l, s, stop
}

// However timers and requests come, a step seals nothing before it is due, begins at least an
// interval after the last one, and has everything that waits by then. Nothing waits longer
// than an interval, whether it woke the lane during a pause, during a step or while it slept.
func TestNothingWaitsLongerThanTheInterval(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(seed, 0))
		l, s, stop := pacedLane(t, paceInterval)
		const entries = 400
		for range entries {
			// Some come densely, some after a rest. Half are known in advance, half when they come.
			time.Sleep(time.Duration(random.Int64N(int64(paceInterval / 5))))
			if random.IntN(20) == 0 {
				time.Sleep(3 * paceInterval)
			}
			at := time.Now()
			if random.IntN(2) == 0 {
				at = at.Add(time.Duration(random.Int64N(int64(2 * paceInterval))))
			}
			s.add(at)
			l.roster.Wake()
		}
		time.Sleep(10 * paceInterval)
		stop()
		var last time.Time
		n, waited, pauses := 0, 0, 0
		for _, step := range s.steps() {
			if !last.IsZero() && step.at.Sub(last) < paceInterval {
				t.Errorf("a step begins %s after the last one", step.at.Sub(last))
			}
			if step.at.Sub(last) == paceInterval {
				pauses++
			}
			for _, since := range step.since {
				n++
				wait := step.at.Sub(since)
				if wait < 0 || wait > paceInterval {
					t.Errorf("an entry is sealed %s after it is ready", wait)
				}
				if wait > 0 {
					waited++
				}
			}
			last = step.at
		}
		if n != entries || waited < entries/2 || pauses == 0 {
			t.Errorf("%d of %d entries are sealed, %d have waited, %d steps behind a pause", n, entries, waited, pauses)
		}
	})
}

// An occasional timer is not late because of the interval.
func TestALaneThatHasRestedSealsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s, _ := pacedLane(t, paceInterval)
		for range 5 {
			due := time.Now().Add(3 * paceInterval)
			s.add(due)
			l.roster.Wake()
			time.Sleep(5 * paceInterval)
			if steps := s.steps(); len(steps) == 0 || !steps[len(steps)-1].at.Equal(due) {
				t.Errorf("due at %v, steps %v", due, steps)
			}
		}
	})
}

// stepLimit is more than a step of a fakeLane takes, and less than an interval.
const stepLimit = paceInterval / 2

// There is no pause after a step that could not take everything that was ready: a burst goes
// through as fast as without an interval.
func TestFullStepsDoNotPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s, _ := pacedLane(t, paceInterval)
		s.add(slices.Repeat([]time.Time{time.Now()}, 5*MaxStepEntries)...)
		l.roster.Wake()
		time.Sleep(10 * paceInterval)
		steps := s.steps()
		if len(steps) != 5 {
			t.Fatalf("%d steps", len(steps))
		}
		for i := range steps[1:] {
			if gap := steps[i+1].at.Sub(steps[i].at); gap >= stepLimit {
				t.Errorf("step %d begins %s after the one before", i+2, gap)
			}
		}
	})
}

// An aborted step is sealed again immediately.
func TestAnAbortedStepDoesNotPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s, _ := pacedLane(t, paceInterval)
		s.refuse = 2
		s.add(time.Now())
		l.roster.Wake()
		time.Sleep(10 * paceInterval)
		steps := s.steps()
		if len(steps) != 3 {
			t.Fatalf("%d steps", len(steps))
		}
		if took := steps[2].at.Sub(steps[0].at); took >= 2*stepLimit {
			t.Errorf("sealed for the third time after %s", took)
		}
	})
}

// A lane that is stopped during a pause ends immediately.
func TestAStopDoesNotWaitForThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s, stop := pacedLane(t, time.Hour)
		s.add(time.Now())
		l.roster.Wake()
		time.Sleep(paceInterval)
		s.add(time.Now())
		l.roster.Wake()
		time.Sleep(paceInterval)
		if steps := s.steps(); len(steps) != 1 {
			t.Fatalf("%d steps", len(steps))
		}
		began := time.Now()
		stop()
		if took := time.Since(began); took >= stepLimit {
			t.Errorf("ended after %s", took)
		}
	})
}

// Without an interval steps follow each other.
func TestWithoutAnIntervalThereIsNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s, _ := pacedLane(t, 0)
		for range 10 {
			s.add(time.Now())
			l.roster.Wake()
			time.Sleep(stepLimit)
		}
		if steps := s.steps(); len(steps) != 10 {
			t.Errorf("%d steps", len(steps))
		}
	})
}

// callers makes n callers call one after the other for a while: each rests for a moment when its call is decided. It
// returns how many calls were decided, and how many steps there were.
func (p *paced) callers(l *testLane, n int, rest func() time.Duration) (calls, steps int) {
	const span = 100 * paceInterval
	before := len(p.steps())
	call := func() {
		p.add(time.Now())
		p.mu.Lock()
		p.calls++
		p.mu.Unlock()
		l.roster.Call()
		l.roster.Wake()
	}
	p.mu.Lock()
	p.told = func(decided int) {
		calls += decided
		for range decided {
			time.AfterFunc(rest(), call)
		}
	}
	p.mu.Unlock()
	for range n {
		call()
	}
	time.Sleep(span)
	p.mu.Lock()
	p.told = func(decided int) { calls += decided }
	p.mu.Unlock()
	time.Sleep(2 * paceInterval)
	steps = len(p.steps()) - before
	p.mu.Lock()
	defer p.mu.Unlock()
	return calls, steps
}

// More than half of the steps for a lone caller begin early, so it waits a pause for less than half of its calls, and
// there are at most earlySteps of them between two others. Crowds, whatever their calls wait between two, get no more
// steps than if nothing were early. And so do others' requests, also while a lone caller could begin steps.
func TestALoneCallerDoesNotWaitForThePause(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	synctest.Test(t, func(t *testing.T) {
		l, s, _ := pacedLane(t, paceInterval)
		random := rand.New(rand.NewPCG(seed, 0))
		rest := func() time.Duration { return time.Duration(random.Int64N(int64(paceInterval / 20))) }
		for range 3 {
			from := len(s.steps())
			calls, steps := s.callers(l, 1, rest)
			if calls != steps || calls < 70*(earlySteps+1) || calls > 101*(earlySteps+1) {
				t.Errorf("a lone caller: %d calls in %d steps of 100 intervals", calls, steps)
			}
			all, early := s.steps()[from:], 0
			for i := range all[1:] {
				if early++; all[i+1].at.Sub(all[i].at) >= paceInterval {
					early = 0
				}
				if early > earlySteps {
					t.Fatalf("%d early steps in a row", early)
				}
			}
			for _, crowd := range []int{2, 64} {
				calls, steps = s.callers(l, crowd, rest)
				if steps > 101+earlySteps || calls < 95*crowd {
					t.Errorf("%d callers: %d calls in %d steps of 100 intervals", crowd, calls, steps)
				}
			}
			_, _ = s.callers(l, 1, rest) // from here on steps may begin early
			before := len(s.steps())
			for range 100 {
				s.add(time.Now())
				l.roster.Wake()
				time.Sleep(paceInterval / 10)
			}
			if n := len(s.steps()) - before; n > 11 {
				t.Errorf("without callers: %d steps of 10 intervals", n)
			}
		}
	})
}
