package api

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/caller"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
	"github.com/waterclock/waterclock/test/witness"
)

const (
	randomPartitions = 6
	randomMembers    = 3
	randomCallers    = 8
	idsPerPrefix     = 8
	// moveGrace is how far from what was seen of a move an answer may tell of it: what instances know of each other is
	// some hundred milliseconds old. calm is between two moves.
	moveGrace, calm = time.Second, 4 * time.Second
	// sessionTime is how long a partition may be without its owner before another one is live, by the settings.
	sessionTime = 10 * time.Second
	// undecided is how long a decision is waited for (docs/API.md).
	undecided = 10 * time.Second
	// moveLimit is how long a move may take: a session's end, and then some on a busy machine.
	moveLimit = 2 * limit
)

// prefixes are those of the IDs; some need encoding in a path.
var prefixes = []string{"a-", "b/", "ü ?", "d%2F", "e+&="}

var randomSeed = flag.Uint64("random.seed", 0, "seed of TestRandomCalls; 0: of the clock")

// member is an instance, as a process.
type member struct {
	*rig.Process
	*caller.Caller
	// left: it was killed, stopped, or paused for longer than its session. A call may have got no answer.
	left bool
}

// world is what the test knows.
type world struct {
	*setup
	key, config string // files
	ids         []string

	moves []move
	all   []*member

	mu      sync.Mutex // guards what follows
	members []*member  // that are asked
	sources map[string]string
	paused  string // ID that was paused last
	calls   []*call
	jobs    []*call // that have started one
	random  *rand.Rand
}

// move is a time in which partitions are on their way.
type move struct{ from, to time.Time }

// Random calls, asked of a random one of three instances each time, while instances are killed, stopped and paused and
// others join. What was answered agrees with what a plain client reads in the topics: each decision is that of the
// request's event, what was said to be written is there, once, what was said not to be is not, and what was shown was
// so (package history). Only while partitions move, a call is answered 503, or with 202 though it waits.
func TestRandomCalls(t *testing.T) {
	t.Parallel()
	seed := *randomSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-random.seed=%d", seed)
	calls, rounds, perSecond := 700, 1, 60
	if runs.Slow() {
		calls, rounds, perSecond = 10_000, 6, 120
	}
	s := &setup{Setup: rig.NewSetup(t, kafkatest.Shared(t), randomPartitions, 2)}
	w := &world{setup: s, key: keyFile(t), sources: map[string]string{}, random: rand.New(rand.NewPCG(seed, 1<<32)),
		config: rig.File(t, "config.yaml", fmt.Sprintf("tenants:\n  %s:\n    events: true", s.Requests))}
	for _, prefix := range prefixes {
		for i := range idsPerPrefix {
			w.ids = append(w.ids, fmt.Sprintf("%s%02d", prefix, i))
		}
	}
	watched := rig.Watch(t, s.Cluster, s.Requests, randomPartitions, s.Target)
	for range randomMembers {
		w.join()
	}
	w.settled()
	for i := range 10 { // over HTTP nothing becomes a dead letter
		w.Send(w.Request(fmt.Sprint("bad/", i), "", "timer-after", "soon", "timer-target-topic", w.Target))
	}
	pace := time.NewTicker(time.Second / time.Duration(perSecond))
	defer pace.Stop()
	churned := make(chan struct{})
	var callers sync.WaitGroup
	for i := range randomCallers {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		callers.Go(func() { w.callAll(r, calls, pace.C, churned) })
	}
	w.churn(rounds)
	close(churned)
	callers.Wait()
	w.rest()
	w.noteMoves()
	h := watched.History(true)
	v := newVerdict(w, &h)
	for _, c := range w.calls {
		v.judge(c)
	}
	rig.Violations(t, witness.Check(h))
	v.enough(calls)
}

// join starts another instance.
func (w *world) join() {
	p, c := w.process(w.key, "--config", w.config)
	m := &member{Process: p, Caller: c}
	await.Until(w, limit, "it listens", func() bool { return m.Get("/docs").Status != 0 })
	w.all = append(w.all, m)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members = append(w.members, m)
}

// settled waits until every partition is live, and each instance has its share.
func (w *world) settled() {
	w.Helper()
	await.Until(w, moveLimit, "all partitions are live again", func() bool {
		w.mu.Lock()
		members := w.members
		w.mu.Unlock()
		for _, m := range members {
			if m.Live() != randomPartitions/len(members) {
				return false
			}
		}
		return true
	})
}

// churn takes instances away and has others join. One is killed (SIGKILL), one is stopped where
// it stands until others have its partitions, and then goes on, and one ends in order.
func (w *world) churn(rounds int) {
	for round := range rounds {
		await.For(w, calm)
		began := time.Now()
		m := w.leaves()
		switch round % 3 {
		case 0:
			m.Kill()
		case 1: // it wakes up without knowing that its partitions were taken away, and is asked
			m.Pause()
			w.settled()
			await.For(w, 2*time.Second) // others change what was its
			w.mu.Lock()
			w.members = append(append([]*member{}, w.members...), m)
			w.mu.Unlock()
			await.For(w, 200*time.Millisecond) // calls wait for it
			m.Continue()
		case 2:
			m.Term()
			m.Exit(limit)
		}
		w.settled()
		if round%3 != 1 {
			w.join()
			w.settled()
		}
		w.moves = append(w.moves, move{began, time.Now()})
	}
	await.For(w, 2*time.Second)
}

var lived = regexp.MustCompile(`(?m)^time=(\S+) .*msg="partition live"`)

// noteMoves adds the moves that nobody has caused, as on a machine that stands still: by the logs of the instances.
func (w *world) noteMoves() {
	for _, m := range w.all {
		for _, found := range lived.FindAllStringSubmatch(m.Output(), -1) {
			if at, err := time.Parse(time.RFC3339Nano, found[1]); err == nil {
				w.moves = append(w.moves, move{at.Add(-sessionTime), at})
			}
		}
	}
}

// leaves has an instance not be asked any more.
func (w *world) leaves() *member {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := w.random.IntN(len(w.members))
	m := w.members[i]
	m.left = true
	w.members = append(append([]*member{}, w.members[:i]...), w.members[i+1:]...)
	return m
}

// anyone is an instance that is asked.
func (w *world) anyone() *member {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.members[w.random.IntN(len(w.members))]
}

// callAll makes calls, at the common pace, until there are enough and nothing moves any more.
func (w *world) callAll(r *rand.Rand, enough int, pace <-chan time.Time, churned <-chan struct{}) {
	for {
		<-pace
		w.mu.Lock()
		n := len(w.calls)
		c := &call{n: n}
		w.calls = append(w.calls, c)
		w.mu.Unlock()
		select {
		case <-churned:
			if n >= enough {
				return
			}
		default:
		}
		if n%15 == 0 {
			w.overKafka(r, n)
		}
		w.draw(r, c)
		c.make(w.anyone())
		w.mu.Lock()
		if c.got.Header.Get("Location") != "" {
			w.jobs = append(w.jobs, c)
		}
		if timer := c.got.Object("timer"); timer != nil && c.id != "" {
			w.sources[c.id], _ = timer["source"].(string)
		}
		if c.got.Word() == "paused" {
			w.paused = c.id
		}
		w.mu.Unlock()
	}
}

// lastPaused is the ID that was paused last, or another one if it has been asked for.
func (w *world) lastPaused(other string) (id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id, w.paused = cmp.Or(w.paused, other), ""
	return id
}

// overKafka writes a request as any client does.
func (w *world) overKafka(r *rand.Rand, n int) {
	rec := w.Cancel(w.ids[r.IntN(len(w.ids))])
	if r.IntN(2) == 0 {
		rec = w.Request(string(rec.Key), fmt.Sprint("kafka-", n), "timer-after", "1h", "timer-target-topic", w.Target)
	}
	w.Client.Produce(w.Context(), rec, func(_ *kgo.Record, err error) {
		if err != nil {
			w.Errorf("send: %v", err)
		}
	})
}

// rest waits until no job runs and nothing is about to fire, so that all is known that happens, and until each instance
// answers for all partitions.
func (w *world) rest() {
	for _, j := range w.jobs {
		if j.who.left {
			continue // it may have ended with its instance
		}
		await.Until(w, moveLimit, "a job ends", func() bool {
			state := j.who.Get(j.got.Header.Get("Location")).Body["state"]
			return state != nil && state != "running"
		})
	}
	soon := fmt.Sprint(time.Now().Add(30 * time.Minute).UnixMilli())
	filters := []string{"state=triggered", "state=parked", "state=pending&due-before=" + soon}
	for _, m := range w.members {
		for _, filter := range filters {
			await.Until(w, limit, "all has fired that is due", func() bool {
				got := m.Get(w.at("/timers/count?" + filter))
				return got.Body["count"] == 0.0 && got.Body["exact"] == true && !strings.Contains(got.Text, "missing")
			})
		}
	}
	if err := w.Client.Flush(w.Context()); err != nil {
		w.Fatal(err)
	}
}
