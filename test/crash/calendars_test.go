package crash

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// span is a time that a calendar excludes: whole seconds, the end is free.
type span struct{ from, to time.Time }

// edition is a calendar as it was from an instant on.
type edition struct {
	at    time.Time // of its record
	spans []span
}

// rules are those of a calendar, nil if it excludes nothing: then it is deleted.
func (e *edition) rules() []byte {
	var hours []string
	for _, s := range e.spans {
		hours = append(hours, s.from.UTC().Format(time.TimeOnly)+"-"+s.to.UTC().Format(time.TimeOnly))
	}
	if hours == nil {
		return nil
	}
	text, err := json.Marshal(map[string][]string{"hours": hours})
	if err != nil {
		panic(err)
	}
	return text
}

// gridOfDues are the occurrences of a recurrence that has no calendar.
type gridOfDues struct {
	first    time.Time
	interval time.Duration
	n        int
}

func (g gridOfDues) at(i int) time.Time { return g.first.Add(time.Duration(i) * g.interval) }

// comes reports whether a recurrence with that shift has an occurrence at an instant, by one edition.
func (g gridOfDues) comes(e *edition, shift waterclock.ShiftPolicy, at time.Time) bool {
	on := at.Sub(g.first)%g.interval == 0 && !at.Before(g.first) && !at.After(g.at(g.n-1))
	for _, s := range e.spans {
		if !at.Before(s.from) && at.Before(s.to) {
			return false
		}
		holds := s.from.Sub(g.first)/g.interval != s.to.Sub(g.first)/g.interval // an occurrence without calendars
		on = on || holds && shift == waterclock.ShiftNext && at.Equal(s.to) ||
			holds && shift == waterclock.ShiftPrevious && at.Equal(s.from.Add(-time.Millisecond))
	}
	return on
}

// draw draws an edition for an instant: spans of one or two occurrences, which end between two. The first two
// occurrences and the last two are always free.
func (g gridOfDues) draw(r *rand.Rand) (e edition) {
	for i := 2; ; {
		i += 1 + r.IntN(2)
		length := 1 + r.IntN(2)
		if i+length > g.n-2 {
			return e
		}
		from := g.at(i).Add(-g.interval / 2)
		e.spans = append(e.spans, span{from, from.Add(time.Duration(length) * g.interval)})
		i += length
	}
}

// outage is a time without an owner.
type outage struct{ from, to time.Time }

// believed are bounds for what an owner knows: it has read a change within lag, and has decided what is due within
// slack.
const lag, slack = 2 * time.Second, 2 * time.Second

// inForce are the editions that an owner may have known when it decided what to do at an instant.
func inForce(all []edition, outages []outage, at time.Time) []edition {
	decided := at.Add(slack)
	for _, o := range outages {
		if at.After(o.from.Add(-slack)) && at.Before(o.to.Add(slack)) {
			decided = o.to.Add(2 * slack)
		}
	}
	first := 0
	for first+1 < len(all) && !all[first+1].at.After(at.Add(-lag)) {
		first++
	}
	last := first
	for last+1 < len(all) && all[last+1].at.Before(decided) {
		last++
	}
	return all[first : last+1]
}

// verdict says what must become of an instant.
type verdict int

const (
	may verdict = iota
	must
	mustNot
)

func (g gridOfDues) judge(of []edition, shift waterclock.ShiftPolicy, at time.Time) verdict {
	coming := 0
	for i := range of {
		if g.comes(&of[i], shift, at) {
			coming++
		}
		if shift != waterclock.ShiftSkip && of[i].at.Equal(at) {
			return may // what a change has moved to a time that has passed comes with the change
		}
	}
	switch coming {
	case len(of):
		return must
	case 0:
		return mustNot
	}
	return may
}

// TestCalendarsChangeUnderRecurringTimers has a calendar changed and deleted, again and again, under the timers that
// name it, while their owner is killed by kill -9: right behind a change, before it, and when they are due. Each
// occurrence fires once, those that all rules agree on fire, and they are numbered without a gap. Slow runs have 20,000
// timers.
func TestCalendarsChangeUnderRecurringTimers(t *testing.T) {
	t.Parallel()
	const partitions, limit = 4, 3 * time.Minute
	shifts := []waterclock.ShiftPolicy{waterclock.ShiftSkip, waterclock.ShiftNext, waterclock.ShiftPrevious}
	g, each := gridOfDues{interval: 6 * time.Second, n: 14}, 100 // of each shift; and half as many that fire once
	if runs.Slow() {
		g.interval, each = 20*time.Second, 4400
	}
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	s := rig.NewSetup(t, kafkatest.Shared(t), partitions, partitions)
	serve := func() *rig.Process {
		p := s.Start("--instance-id", "one")
		p.Ready(partitions, limit)
		return p
	}
	var editions []edition
	calendars := s.Group() + ".waterclock.calendars"
	put := func(e edition) {
		rec := &kgo.Record{Topic: calendars, Key: []byte("busy"), Value: e.rules()}
		rig.Send(t, s.Client, rec)
		editions = append(editions, e)
	}
	p := serve()
	g.first = time.Now().Add(g.interval + 10*time.Second).Truncate(g.interval)
	put(g.draw(random))
	var recs []*kgo.Record
	pending, once := 0, each/2
	onceAt := func(i int) time.Time { return g.at(2 + i%(g.n-4)).Add(time.Duration(i%2) * g.interval / 4) }
	for _, shift := range shifts {
		common := []string{"timer-target-topic", s.Target, "timer-not-on", "busy", "timer-shift", string(shift),
			"timer-catch-up", "all", "timer-until", millis(g.at(g.n - 1))}
		for i := range each {
			rec := s.Request(fmt.Sprint(shift, "-", i), "1", append(common, "timer-at", millis(g.first))...)
			if i%2 == 0 {
				rec = rig.With(rec, "timer-every", g.interval.String())
			} else {
				rec = rig.With(rec, "timer-cron", fmt.Sprintf("*/%d * * * * *", int(g.interval.Seconds())))
			}
			recs = append(recs, rec)
		}
		for i := range once {
			recs = append(recs, s.Request(fmt.Sprint("once-", shift, "-", i), "1", append(common[:6:6], "timer-at",
				millis(onceAt(i)))...))
			if shift == waterclock.ShiftSkip && g.excluded(&editions[0], onceAt(i)) {
				pending--
			}
		}
	}
	s.Send(recs...)
	s.Pending(len(recs)+pending, p)
	var outages []outage
	for i := 0; i < g.n-3; i++ {
		at := g.at(i).Add(g.interval / 4)
		if time.Now().After(at) {
			continue // the owner was away for long
		}
		s.At(at)
		next := g.draw(random)
		if random.IntN(6) == 0 {
			next = edition{}
		}
		killed := func() { outages = append(outages, outage{from: time.Now()}); p.Kill() }
		switch i % 4 {
		case 0: // the pass over the timers is cut off
			put(next)
			s.At(time.Now().Add(time.Duration(random.Int64N(int64(1500 * time.Millisecond)))))
			killed()
		case 1: // the change comes while nobody serves
			killed()
			put(next)
		case 2:
			put(next)
			continue
		case 3: // what is due is firing
			put(next)
			s.At(g.at(i + 1).Add(time.Duration(random.Int64N(int64(300 * time.Millisecond)))))
			killed()
		}
		p = serve()
		outages[len(outages)-1].to = time.Now()
	}
	if len(outages) < 2 {
		t.Fatal("the machine is too slow for this test: the timers are over before their owner is back")
	}
	s.At(g.at(g.n - 1))
	p.Balanced(0)
	s.Out.Quiet(quiet)
	p.End()
	s.NothingDead()
	records := s.Committed(calendars)
	if len(records) != len(editions) {
		t.Fatalf("%d records of calendars, want %d", len(records), len(editions))
	}
	for i := range editions {
		e := &editions[i]
		e.at = records[i].Timestamp // which brokers give
		t.Logf("put %s: %s", clock(e.at.UnixMilli()), e.rules())
	}
	for _, o := range outages {
		t.Logf("no owner from %s to %s", clock(o.from.UnixMilli()), clock(o.to.UnixMilli()))
	}
	by := rig.Emissions(t, s.Out.Records())
	total := 0
	for _, shift := range shifts {
		want := g.wanted(editions, outages, shift)
		for i := range each {
			id := fmt.Sprint(shift, "-", i)
			if total += len(by[id]); !want.check(t, id, by[id]) {
				break // the others are alike
			}
		}
		t.Logf("%s: of %d instants %d must fire, %d must not", shift, len(want), want.count(must), want.count(mustNot))
		for i := range once {
			id := fmt.Sprint("once-", shift, "-", i)
			total += len(by[id])
			g.checkOnce(t, id, by[id], editions, outages, shift, onceAt(i))
		}
	}
	if !t.Failed() && total != len(s.Out.Records()) {
		kafkatest.Inexact(t, "%d emissions, %d of them of the timers", len(s.Out.Records()), total)
	}
	t.Logf("%d timers, a calendar changed %d times and %d times kill -9: %d emissions", len(recs), len(editions)-1,
		len(outages), total)
}

// excluded reports whether an edition excludes an instant.
func (g gridOfDues) excluded(e *edition, at time.Time) bool {
	return slices.ContainsFunc(e.spans, func(s span) bool { return !at.Before(s.from) && at.Before(s.to) })
}

// verdicts are those of instants, in Unix milliseconds.
type verdicts map[int64]verdict

func (v verdicts) count(of verdict) (n int) {
	for _, is := range v {
		if is == of {
			n++
		}
	}
	return n
}

// wanted returns the verdicts of all instants at which a recurrence may have an occurrence.
func (g gridOfDues) wanted(all []edition, outages []outage, shift waterclock.ShiftPolicy) verdicts {
	want := make(verdicts)
	judge := func(at time.Time) {
		want[at.UnixMilli()] = g.judge(inForce(all, outages, at), shift, at)
	}
	for i := range g.n {
		judge(g.at(i))
	}
	for _, e := range all {
		if e.at.After(g.first) {
			judge(e.at)
		}
		for _, s := range e.spans {
			judge(s.to)
			judge(s.from.Add(-time.Millisecond))
		}
	}
	return want
}

// check compares the emissions of a recurring timer with the verdicts, and reports whether they are as they must be.
func (v verdicts) check(t *testing.T, id string, fired []history.Received) (right bool) {
	t.Helper()
	wrong := func(format string, args ...any) {
		right = false
		kafkatest.Inexact(t, id+": "+format, args...)
	}
	right = true
	came, last := make(map[int64]bool), int64(0)
	for i, r := range fired {
		due, err := strconv.ParseInt(r.Header("waterclock-due"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if number := r.Header("waterclock-occurrence"); number != fmt.Sprint(i+1) || due <= last {
			wrong("occurrence %s, due %s, came as number %d, behind one due %s", number, clock(due), i+1, clock(last))
		}
		if verdict, known := v[due]; !known || verdict == mustNot {
			wrong("an occurrence was due %s, when no calendar has one", clock(due))
		}
		came[due], last = true, due
	}
	for due, verdict := range v {
		if verdict == must && !came[due] {
			wrong("the occurrence due %s is lost", clock(due))
		}
	}
	return right
}

// checkOnce compares the emissions of a timer that fires once with what calendars say of its time.
func (g gridOfDues) checkOnce(t *testing.T, id string, fired []history.Received, all []edition, outages []outage,
	shift waterclock.ShiftPolicy, at time.Time) {
	t.Helper()
	want := must
	if known := inForce(all, outages, at); shift == waterclock.ShiftSkip {
		excludes := func(e edition) bool { return g.excluded(&e, at) }
		changed := func(e edition) bool { return e.at.After(at) } // it says nothing of what was due before
		switch {
		case excludes(all[0]): // it has expired at once
			want = mustNot
		case !slices.ContainsFunc(known, excludes): // if an earlier one did, the timer has waited for its time
		case slices.ContainsFunc(known, func(e edition) bool { return !excludes(e) || changed(e) }):
			want = may
		default:
			want = mustNot
		}
	}
	if len(fired) > 1 || len(fired) == 0 && want == must || len(fired) > 0 && want == mustNot {
		kafkatest.Inexact(t, "%s, due %s, has fired %d times", id, clock(at.UnixMilli()), len(fired))
	}
}

func clock(millis int64) string { return time.UnixMilli(millis).UTC().Format("04:05.000") }
