package brokers

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

const (
	// costPause is how long a broker is paused, and costWindow how long after the
	// beginning of a fault its costs are counted: until after Kafka has given the
	// broker up, and before it comes back.
	costPause  = 15 * time.Second
	costWindow = 14 * time.Second
	// settle is how long after leaders were moved the load runs before a fault: an
	// instance looks after each of those partitions for a second or two.
	settle = 8 * time.Second
	// calm is how much of that, at its end, shows what the machine does by itself.
	calm = 5 * time.Second
	// behindPlain is how much later than a plain writer timers may get through.
	behindPlain = time.Second
	// aloneSilence and aloneP99 are for timers that need nothing of the broker,
	// where Kafka allows it.
	aloneSilence, aloneP99 = 2 * time.Second, 1200 * time.Millisecond
	// unquiet is what comes on top of all that in a run among other tests: single runs
	// differ by seconds, in what the brokers do among themselves and in what the machine
	// has to do besides. What waits for the broker in vain waits 8 s or more.
	unquiet = 1500 * time.Millisecond
)

// fault is what is done to a broker.
type fault struct {
	name  string
	do    func(s *setup, broker int)
	fixed func(s *setup, broker int)
}

var faults = []fault{
	{"killed", func(s *setup, b int) { s.c.Kill(b) }, func(s *setup, b int) { s.c.Restart(b) }},
	{"paused", func(s *setup, b int) { s.c.Pause(b) }, func(s *setup, b int) { s.c.Resume(b) }},
}

// row is one line of the table.
type row struct {
	fault                string
	broker               int
	controller           bool // the broker led the metadata quorum
	coordinator          bool // it coordinated the group: nobody commits without
	plainLed, plainOther figures
	of                   [classes]figures
	before               [classes]figures // in the calm, by the load alone
}

// accident is a fault that happens to a broker, or to the one that is the active
// controller by then.
type accident struct {
	fault
	broker int
}

// theController is the broker of an accident that befalls the active controller.
const theController = -1

// accidents are all faults to all brokers; or with each only one to each broker, and one
// to the active controller: without it nobody leaves an ISR before there is another.
func accidents(each bool) (all []accident) {
	for k, f := range faults {
		for b := range brokerCount {
			if !each || b%len(faults) == k {
				all = append(all, accident{f, b})
			}
		}
	}
	if each {
		all = append(all, accident{faults[0], theController})
	}
	return all
}

// envTable has each broker fail in turn, in both ways and at both rates.
const envTable = "WATERCLOCK_FAILURE_TABLE"

// What a dead or unresponsive broker costs whom, beside what it costs a plain
// idempotent writer, with Kafka's defaults and where Kafka allows more: a broker is
// killed (-9), or paused for 15 s, under steady load. Usually it is one broker, where
// most is expected, where Kafka allows more; with WATERCLOCK_FAILURE_TABLE=1 each
// broker in turn, both ways, at both rates, which takes a quarter of an hour (-timeout)
// and a machine that has nothing else to do.
func TestWhatAFailingBrokerCosts(t *testing.T) {
	runs.NeedSlow(t)
	kafkatest.Alone(t)
	table := os.Getenv(envTable) == "1"
	for _, setup := range []struct {
		name       string
		properties map[string]string
		apart      bool // coordinators are not on the failing broker
	}{
		{"defaults", nil, false},
		{"short lag", map[string]string{"replica.lag.time.max.ms": "500"}, true},
	} {
		t.Run(setup.name, func(t *testing.T) {
			if !table && !setup.apart {
				t.Skipf("takes a quarter of an hour: set %s=1 to run it", envTable)
			}
			for _, load := range []struct {
				rate      int
				accidents []accident
				table     bool
			}{
				{2000, []accident{{faults[0], 0}, {faults[1], 0}}, false},
				{2000, accidents(false), true},
				{10_000, accidents(true), true},
			} {
				if load.table != table {
					continue
				}
				t.Run(fmt.Sprint(load.rate, " a second"), func(t *testing.T) {
					s := newSetup(t, setup.properties)
					allowance := unquiet
					if table {
						allowance = 0
					}
					for _, r := range s.run(load.rate, load.accidents, setup.apart) {
						r.judge(t, setup.apart, allowance)
					}
				})
			}
		})
	}
}

// run has all of that happen under load, and measures.
func (s *setup) run(rate int, accidents []accident, apart bool) (rows []row) {
	s.placeReplicas(-1)
	l := s.load(rate)
	await.Until(s.t, time.Minute, "emissions", func() bool { return s.out.count() > 10*rate })
	var spans []span
	for _, a := range accidents {
		if a.broker == theController {
			a.broker = s.controller()
		}
		away := -1
		if apart {
			away = a.broker
		}
		s.placeReplicas(away)
		await.For(s.t, settle)
		r := row{fault: a.name, broker: a.broker, controller: s.controller() == a.broker,
			coordinator: s.coordinator() == a.broker}
		from := time.Now()
		a.do(s, a.broker)
		await.For(s.t, costPause)
		a.fixed(s, a.broker)
		s.c.AwaitInSync(s.t)
		await.Until(s.t, time.Minute, "the instance ready after the fault", s.ready)
		await.For(s.t, 2*time.Second)
		rows, spans = append(rows, r), append(spans, span{a.name, from, from.Add(costWindow)})
	}
	n := l.Stop()
	await.Until(s.t, wellAhead+time.Minute, fmt.Sprint(n, " emissions"), func() bool { return s.out.count() >= n })
	await.For(s.t, time.Second) // for what must not come
	s.out.exact(s.t, n)
	received, written := s.out.list(), s.reference.list()
	for i := range rows {
		rows[i].measure(spans[i], received, written)
		s.t.Logf("%s at %s\n%s", rows[i].name(), spans[i].from.Format("15:04:05.000"), rows[i])
	}
	return rows
}

// measure fills in what the span of a fault, and the calm before it, show.
func (r *row) measure(s span, received, written []arrival) {
	// What is due just before the fault is late for it.
	before := span{from: s.from.Add(-calm), to: s.from.Add(-time.Second)}
	for c := range classes {
		of := func(a arrival) bool { return a.n >= 0 && classOf(a.n, r.broker) == c }
		r.of[c], r.before[c] = s.measure(received, of), before.measure(received, of)
	}
	led := func(a arrival) bool { return leadsTarget(int(a.partition)) == r.broker }
	r.plainLed = s.measure(written, led)
	r.plainOther = s.measure(written, func(a arrival) bool { return !led(a) })
}

func (r row) name() string {
	name := fmt.Sprintf("broker %d %s", r.broker, r.fault)
	if r.controller {
		name += ", the active controller"
	}
	if r.coordinator {
		name += ", the group's coordinator"
	}
	return name
}

func (r row) String() string {
	var b strings.Builder
	line := func(name string, f figures) { fmt.Fprintf(&b, "  %-34s %s\n", name, f) }
	line("plain writer, led by it", r.plainLed)
	line("plain writer, others", r.plainOther)
	for c := range classes {
		line("timers: "+c.String(), r.of[c])
	}
	line("before the fault", r.before[untouched])
	return b.String()
}

// judge holds the figures against what is wanted. Without the group's coordinator
// nobody commits, so all wait for an election as what the broker led does. What the
// load alone makes on this machine, before the fault, comes on top, up to noise: all
// of it shares two cores, and a plain writer does a fraction of the work.
func (r row) judge(t *testing.T, apart bool, allowance time.Duration) {
	t.Helper()
	for c := range classes {
		what := r.name() + ", timers: " + c.String()
		plain := r.plainLed.silence
		if c == untouched && !r.coordinator {
			plain = r.plainOther.silence
		}
		limit := plain + behindPlain
		if c == untouched && apart && !r.controller {
			limit = min(limit, aloneSilence)
			// Some deaths hold up a plain writer for longer than that.
			if p99 := max(aloneP99, r.plainOther.p99) + allowance + min(r.before[c].p99, noise); r.of[c].p99 > p99 {
				t.Errorf("%s: p99 lateness %s, want at most %s", what, r.of[c].p99, p99)
			}
		}
		if limit += allowance + min(r.before[c].longest, noise); r.of[c].silence > limit {
			t.Errorf("%s: silent for %s, want at most %s", what, r.of[c].silence, limit)
		}
	}
}
