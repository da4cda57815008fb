package simulation

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafka/topics"
)

var faultFlag = flag.String("fault", "",
	"half of the faults are of kinds whose names contain it; a seed then stands for other plans")

const (
	requests   = "timers"
	target     = "out"
	spare      = "out-2" // another target
	group      = "simulated"
	other      = "other" // group
	partitions = 4
	brokers    = 3
	firstPort  = 9092

	// What a seed must have had to count.
	leastFaults       = 5
	leastRequests     = 300
	leastNear         = leastRequests / 3 // of them within nearDue of when their timer was due
	leastAcquisitions = 2

	// span is within which time requests are sent and faults begin.
	span = 25 * time.Second
	// nearDue is how close to a due time its timer is cancelled or replaced.
	nearDue = 50 * time.Millisecond
)

// plan is what a seed stands for.
type plan struct {
	Seed     uint64
	Settings settings
	Asks     []ask
	Troubles []trouble
	Changes  []calendarChange
	Rates    []rateChange
}

// calendarChange is a calendar that is put: it excludes the time between two instants of the run.
type calendarChange struct {
	At       time.Duration // since the begin
	Name     string
	From, To time.Duration // none excluded if they are the same: then it is deleted
}

// calendarNames are those that timers name.
func calendarNames() []string { return []string{"first", "second"} }

// record is the record of the calendar.
func (c *calendarChange) record(begun time.Time) *kgo.Record {
	r := &kgo.Record{Topic: topics.Calendars(group), Key: []byte(c.Name)}
	if c.From != c.To {
		clock := func(d time.Duration) string { return begun.Add(d).UTC().Format(time.TimeOnly) }
		r.Value = fmt.Appendf(nil, `{"hours": ["%s-%s"]}`, clock(c.From), clock(c.To))
	}
	return r
}

// drawCalendars draws calendars that change again and again, and timers that name them.
func drawCalendars(r *rand.Rand) (changes []calendarChange, asks []ask) {
	for range 8 {
		for _, name := range calendarNames() {
			c := calendarChange{At: between(r, span), Name: name}
			if len(changes) < len(calendarNames()) {
				c.At = 0 // all are there from the begin
			}
			c.From = c.At + between(r, 10*time.Second)
			if c.To = c.From; c.At == 0 || r.IntN(6) != 0 {
				c.To += 2*time.Second + between(r, 8*time.Second)
			}
			changes = append(changes, c)
		}
	}
	slices.SortStableFunc(changes, func(a, b calendarChange) int { return int(a.At - b.At) })
	shifts := []waterclock.ShiftPolicy{"", waterclock.ShiftSkip, waterclock.ShiftNext, waterclock.ShiftPrevious}
	for i := range 30 {
		a := ask{At: between(r, span), ID: fmt.Sprint("not-on-", i), Action: history.Schedules,
			NotOn: calendarNames()[r.IntN(2)], Shift: shifts[r.IntN(len(shifts))]}
		if r.IntN(4) == 0 {
			a.NotOn = strings.Join(calendarNames(), ",")
		}
		a.Due = a.At + between(r, 6*time.Second)
		if i%3 != 0 {
			a.At /= 2
			a.Until = a.Due + 4*time.Second + between(r, 8*time.Second)
		}
		switch i % 3 {
		case 1:
			a.Every = time.Duration(1+r.IntN(3)) * time.Second
		case 2:
			a.Cron = 1 + r.IntN(3)
		}
		asks = append(asks, a)
		if r.IntN(4) == 0 { // steered while it is pending
			steers := []history.Action{history.Triggers, history.Cancels, history.Pauses}
			b := ask{At: a.At + between(r, 6*time.Second), ID: a.ID, Action: steers[r.IntN(len(steers))]}
			if asks = append(asks, b); b.Action == history.Pauses {
				asks = append(asks, ask{At: b.At + between(r, 4*time.Second), ID: a.ID, Action: history.Resumes})
			}
		}
	}
	return changes, asks
}

// settings are those of all instances.
type settings struct {
	Instances        int
	Static           bool
	Standbys         int
	Lanes            int
	SubPartitions    int
	TransactionalIDs int
	FiringInterval   time.Duration
	FlushInterval    time.Duration
	// Tight: memory has room for some ten timers, so that they are evicted and come back.
	Tight bool
}

// ask is a request that is sent.
type ask struct {
	At     time.Duration // since the begin
	ID     string
	Action history.Action
	If     string        // a condition, or ofLast
	Due    time.Duration // since the begin
	After  bool          // due so long after the record's time stamp
	Every  time.Duration // 0: once, or Cron
	Cron   int           // each so many seconds, from Due on if that is set; 0: none
	Zone   string        // of Cron and Days
	Days   int           // by the calendar: each so many days, and the fourth at Due; 0: none
	Value  string        // "": one that no other request has
	Count  int           // 0: up to Until
	Until  time.Duration // since the begin; 0: up to Count
	Jitter time.Duration
	// CatchUp says which missed occurrences fire.
	CatchUp waterclock.CatchUpPolicy
	// Remember is how long the ID stays taken.
	Remember time.Duration
	Key      string // of the emission; "": the ID
	NullKey  bool
	Size     int    // the value has at least so many bytes
	Target   string // "": target
	More     int    // so many more headers, with names of their own
	Bad      int    // of one that is to be rejected: in what way
	NotOn    string // names of calendars
	Shift    waterclock.ShiftPolicy
	// MaxLate is how late an occurrence may be; 0: any.
	MaxLate time.Duration
}

// trouble is a fault to come.
type trouble struct {
	Kind string
	At   time.Duration // since the begin
	For  time.Duration
	Host int // the instance
	Arg  int // drawn; each kind has its own use for it
}

func (tr trouble) String() string {
	return fmt.Sprintf("%s at %s for %s on %d (%d)", tr.Kind, tr.At, tr.For, tr.Host, tr.Arg)
}

// draw returns the plan of a seed.
func draw(seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 23))
	p := &plan{Seed: seed, Settings: settings{
		Instances: 2 + r.IntN(2), Static: r.IntN(3) == 0, Standbys: r.IntN(2), Lanes: 1 + r.IntN(2),
		SubPartitions:    1 + r.IntN(3),
		TransactionalIDs: 2 + r.IntN(2),
		FiringInterval:   []time.Duration{0, 20 * time.Millisecond, 100 * time.Millisecond}[r.IntN(3)],
		FlushInterval:    []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}[r.IntN(3)],
		Tight:            r.IntN(3) == 0,
	}}
	p.Asks = drawAsks(r)
	wanted := slices.DeleteFunc(kinds(), func(k kind) bool { return !strings.Contains(k.name, *faultFlag) })
	for i := range leastFaults + 2 + r.IntN(5) {
		k := kinds()[r.IntN(len(kinds()))]
		if i%2 == 0 && *faultFlag != "" {
			k = wanted[r.IntN(len(wanted))]
		}
		if once[k.name] && p.has(k.name) {
			k = kinds()[0]
		}
		tr := trouble{
			Kind: k.name, At: time.Second + between(r, span), For: k.least + between(r, k.more),
			Host: r.IntN(p.Settings.Instances), Arg: r.IntN(1 << 20),
		}
		if n := len(p.Troubles); n > 0 && r.IntN(3) == 0 { // when partitions are acquired, or given up
			tr.At = p.Troubles[n-1].At + p.Troubles[n-1].For + between(r, 400*time.Millisecond)
		}
		p.Troubles = append(p.Troubles, tr)
	}
	slices.SortFunc(p.Troubles, func(a, b trouble) int { return int(a.At - b.At) })
	changes, asks := drawCalendars(r)
	p.Changes, p.Asks = changes, append(p.Asks, asks...)
	slices.SortStableFunc(p.Asks, func(a, b ask) int { return int(a.At - b.At) })
	if r.IntN(2) == 0 {
		p.Rates = drawRates(r)
		for i := range p.Troubles { // clocks that are set excuse what is judged of rates
			kind := &p.Troubles[i].Kind
			if strings.Contains(*kind, "clock") && i > 0 && (*faultFlag == "" || !strings.Contains(*kind, *faultFlag)) {
				*kind = kinds()[r.IntN(3)].name
			}
		}
	}
	return p
}

// A seed can count: its timers are cancelled or replaced as they fall due.
func TestPlansCanCount(t *testing.T) {
	for seed := range uint64(100) {
		p := draw(seed)
		due, near := make(map[string]time.Duration), 0
		for _, a := range p.Asks {
			if was, scheduled := due[a.ID]; scheduled && (was-a.At).Abs() <= nearDue &&
				(a.Action == history.Schedules || a.Action == history.Cancels) {
				near++
			}
			if a.Action == history.Schedules {
				due[a.ID] = a.Due
			}
		}
		if len(p.Asks) < leastRequests || near < leastNear || p.Settings.Instances < 2 ||
			len(p.Troubles) < leastFaults {
			t.Errorf("seed %d: %d instances, %d requests, %d of them as a timer falls due, %d faults", seed,
				p.Settings.Instances, len(p.Asks), near, len(p.Troubles))
		}
	}
}

// has reports whether a plan has a fault of one of these kinds.
func (p *plan) has(kinds ...string) bool {
	return slices.ContainsFunc(p.Troubles, func(tr trouble) bool { return slices.Contains(kinds, tr.Kind) })
}

func between(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(d) + 1)).Truncate(time.Millisecond)
}

// drawAsks draws the workload: 300 timers, each third of them cancelled or replaced as it falls due, and others whose
// IDs are asked for again and again.
func drawAsks(r *rand.Rand) (asks []ask) {
	add := func(a ask) { asks = append(asks, a) }
	for i := range 300 {
		a := ask{At: between(r, span), ID: fmt.Sprint("plain-", i), Action: history.Schedules}
		a.Due = a.At + 100*time.Millisecond + between(r, 8*time.Second)
		if i%5 == 0 {
			a.Target = spare
		}
		add(a)
		if i%3 != 0 {
			continue
		}
		b := ask{At: max(a.At, a.Due-nearDue+between(r, 2*nearDue)), ID: a.ID, Action: history.Cancels}
		if r.IntN(3) == 0 {
			b.Action, b.Due = history.Schedules, a.Due+between(r, 5*time.Second)
		}
		if r.IntN(3) == 0 { // what it does depends on whether the timer has fired
			b.If = []string{waterclock.IfAbsent, waterclock.IfPresent}[r.IntN(2)]
		}
		add(b)
		if r.IntN(4) == 0 { // and once more, close behind
			add(ask{At: b.At + between(r, nearDue), ID: a.ID, Action: history.Schedules,
				Due: b.At + between(r, 2*time.Second)})
		}
	}
	for i := range 60 { // steered as they fall due
		a := ask{At: between(r, span), ID: fmt.Sprint("steered-", i), Action: history.Schedules}
		a.Due = a.At + 100*time.Millisecond + between(r, 4*time.Second)
		b := ask{At: max(a.At, a.Due-nearDue+between(r, 2*nearDue)), ID: a.ID,
			Action: []history.Action{history.Pauses, history.Triggers}[r.IntN(2)]}
		add(a)
		add(b)
		if b.Action == history.Pauses {
			add(ask{At: b.At + between(r, 2*time.Second), ID: a.ID, Action: history.Resumes})
		}
	}
	for i := range 30 {
		a := ask{At: between(r, span), ID: fmt.Sprint("expires-", i), Action: history.Schedules,
			MaxLate: 20*time.Millisecond + between(r, time.Second)}
		a.Due = a.At + between(r, 3*time.Second)
		add(a)
	}
	for i := range 12 {
		a := ask{At: between(r, span/2), ID: fmt.Sprint("every-", i), Action: history.Schedules,
			Every: 300*time.Millisecond + between(r, 2*time.Second), Count: 2 + r.IntN(6),
			CatchUp: waterclock.CatchUpAll}
		a.Due = a.At + between(r, 2*time.Second)
		add(a)
	}
	steers := []history.Action{history.Schedules, history.Schedules, history.Cancels, history.Pauses, history.Resumes,
		history.Resumes, history.Triggers}
	for range 80 {
		a := ask{At: between(r, span), ID: fmt.Sprint("shared-", r.IntN(12)), Action: steers[r.IntN(len(steers))]}
		if a.Action == history.Schedules {
			a.Due = a.At + between(r, 4*time.Second)
		}
		if r.IntN(4) == 0 {
			a.If = []string{waterclock.IfAbsent, waterclock.IfPresent}[r.IntN(2)]
		}
		add(a)
	}
	asks = append(asks, drawRecurring(r)...)
	asks = append(asks, drawConditions(r)...)
	asks = append(asks, drawMoves(r)...)
	asks = append(asks, drawDeclared(r)...)
	for i := range 2 * poisons {
		add(ask{At: between(r, span), ID: fmt.Sprint("poison-", i%4), Action: history.Poison, Bad: i % poisons})
	}
	for i := range 60 { // each with something of which there are many
		a := ask{At: between(r, span), ID: fmt.Sprint("many-", i), Action: history.Schedules}
		switch i % 6 {
		case 0:
			a.ID = longID(i, waterclock.MaxIDBytes)
		case 1:
			a.More = 100
		case 2:
			a.Target = fmt.Sprint("nowhere-", i) // there is no such topic
		case 3:
			a.ID = fmt.Sprintf("many-\x00/%d \u00e9", i)
		case 4:
			a.Key = strings.Repeat(a.ID, 1+r.IntN(100))
		case 5:
			a.NullKey, a.Size = i%4 == 1, r.IntN(bigValue)
		}
		a.Due = a.At + between(r, 4*time.Second)
		add(a)
	}
	slices.SortStableFunc(asks, func(a, b ask) int { return int(a.At - b.At) })
	return asks
}

// zones are time zones. A cron expression names one of them.
func zones() []string {
	return []string{"", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "Pacific/Apia", "Australia/Lord_Howe",
		"Etc/GMT+12"}
}

// drawRecurring draws timers that recur by all rules.
func drawRecurring(r *rand.Rand) (asks []ask) {
	policies := []waterclock.CatchUpPolicy{waterclock.CatchUpAll, waterclock.CatchUpLatest, waterclock.CatchUpNone}
	for i := range 24 {
		a := ask{At: between(r, span/2), ID: fmt.Sprint("recurs-", i), Action: history.Schedules,
			CatchUp: policies[r.IntN(len(policies))]}
		period := time.Duration(1+r.IntN(4)) * time.Second
		if i%2 == 0 {
			a.Cron, a.Zone = int(period/time.Second), zones()[r.IntN(len(zones()))]
		} else {
			a.Every, a.Due = period, a.At+between(r, 2*time.Second)
		}
		if r.IntN(2) == 0 {
			a.Count = 1 + r.IntN(6)
		} else {
			a.Until = a.At + 4*time.Second + between(r, 10*time.Second)
		}
		if r.IntN(2) == 0 {
			a.Jitter = between(r, period)
		}
		asks = append(asks, a)
		if r.IntN(4) == 0 { // steered while it recurs
			steers := []history.Action{history.Triggers, history.Cancels, history.Pauses}
			b := ask{At: a.At + between(r, 6*time.Second), ID: a.ID, Action: steers[r.IntN(len(steers))]}
			asks = append(asks, b)
			if b.Action == history.Pauses {
				asks = append(asks, ask{At: b.At + between(r, 4*time.Second), ID: a.ID, Action: history.Resumes})
			}
		}
	}
	return asks
}

// drawDeclared draws timers that are declared again and again: mostly as they are, sometimes with other contents or by
// another schedule.
func drawDeclared(r *rand.Rand) (asks []ask) {
	policies := []waterclock.CatchUpPolicy{waterclock.CatchUpAll, waterclock.CatchUpLatest, waterclock.CatchUpNone}
	for i := range 20 {
		a := ask{At: between(r, span/3), ID: fmt.Sprint("declared-", i), Action: history.Schedules,
			If: waterclock.IfChanged, Value: "0", CatchUp: policies[r.IntN(len(policies))]}
		a.Due = a.At + between(r, 3*time.Second)
		period := time.Duration(1+r.IntN(3)) * time.Second
		switch i % 4 {
		case 0:
			a.CatchUp = ""
		case 1:
			a.Every = period
		case 2:
			a.Cron = int(period / time.Second)
		case 3:
			a.Days, a.Zone, a.Count = 1+r.IntN(3), zones()[1+r.IntN(len(zones())-1)], 4
		}
		if i%4 == 1 || i%4 == 2 {
			a.Until = a.Due + 6*time.Second + between(r, 6*time.Second)
		}
		if r.IntN(3) == 0 {
			a.Jitter = between(r, period)
		}
		asks = append(asks, a)
		for range 2 + r.IntN(5) {
			a.At += between(r, 3*time.Second)
			switch r.IntN(6) {
			case 0, 1:
				a.Value += "'"
			case 2:
				a.Due += between(r, time.Second)
			}
			asks = append(asks, a)
		}
	}
	return asks
}

// drawMoves draws timers that are moved, many as they fall due, and some cancelled close behind.
func drawMoves(r *rand.Rand) (asks []ask) {
	policies := []waterclock.CatchUpPolicy{waterclock.CatchUpAll, waterclock.CatchUpLatest, waterclock.CatchUpNone}
	for i := range 40 {
		a := ask{At: between(r, span*2/3), ID: fmt.Sprint("moved-", i), Action: history.Schedules}
		a.Due = a.At + 100*time.Millisecond + between(r, 4*time.Second)
		if i%4 == 0 {
			a.Every, a.Count = time.Duration(1+r.IntN(2))*time.Second, 2+r.IntN(4)
			a.CatchUp = policies[r.IntN(len(policies))]
		}
		asks = append(asks, a)
		b := ask{At: max(a.At, a.Due-nearDue+between(r, 2*nearDue)), ID: a.ID, Action: history.Moves}
		for range 1 + r.IntN(3) {
			b.Due = b.At + between(r, 4*time.Second) - time.Second
			if b.If = ""; r.IntN(3) == 0 {
				b.If = ofLast
			}
			asks = append(asks, b)
			b.At += between(r, 2*nearDue)
		}
		if r.IntN(3) == 0 {
			asks = append(asks, ask{At: b.At, ID: a.ID, Action: history.Cancels})
		}
	}
	return asks
}

// ofLast stands for the source of the last request for the ID that was acknowledged, or of none.
const ofLast = "of the last"

// drawConditions draws timers that are asked for again and again, if they are what the producer knows; and those whose
// IDs stay taken when they have fired.
func drawConditions(r *rand.Rand) (asks []ask) {
	for range 60 {
		a := ask{At: between(r, span), ID: fmt.Sprint("known-", r.IntN(12)), Action: history.Schedules}
		if r.IntN(2) == 0 {
			a.If = ofLast
		}
		if r.IntN(3) == 0 {
			a.Action = []history.Action{history.Cancels, history.Pauses, history.Resumes, history.Triggers}[r.IntN(4)]
		} else {
			a.After, a.Due = r.IntN(2) == 0, a.At+between(r, 3*time.Second)
		}
		asks = append(asks, a)
	}
	for range 40 {
		a := ask{At: between(r, span), ID: fmt.Sprint("taken-", r.IntN(16)), Action: history.Schedules,
			Remember: 100*time.Millisecond + between(r, 5*time.Second)}
		a.After, a.Due = r.IntN(2) == 0, a.At+between(r, 2*time.Second)
		if r.IntN(4) != 0 {
			a.If = waterclock.IfAbsent
		}
		asks = append(asks, a)
	}
	return asks
}

// last is when a timer fires for the last time at the latest, or is forgotten, unless it is steered.
func (a *ask) last() time.Duration {
	last := a.Due + time.Duration(max(0, a.Count-1))*a.Every
	if a.Cron > 0 {
		last = a.At + time.Duration((a.Count+1)*a.Cron)*time.Second
	}
	return max(last, a.Until) + a.Jitter + a.Remember
}

// longID is an ID of some length.
func longID(n, length int) string {
	id := fmt.Sprint("long-", n, "-")
	return id + strings.Repeat("x", length-len(id))
}

// poisons is how many ways there are to be rejected.
const poisons = 12

// bigValue is more than instances with little memory have room for.
const bigValue = 200 << 10

// record is the request as it is sent; last is the source of the one before.
func (a *ask) record(begun time.Time, last string) *kgo.Record {
	r := &kgo.Record{Topic: requests, Key: []byte(a.ID)}
	set := func(name, value string) {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	switch a.If {
	case "":
	case ofLast:
		set("timer-if", last)
	default:
		set("timer-if", a.If)
	}
	millis := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) + "ms" }
	switch a.Action {
	case history.Schedules:
		r.Value = []byte("of " + a.ID + " at " + cmp.Or(a.Value, a.At.String()))
		r.Value = append(r.Value, bytes.Repeat([]byte{'.'}, max(0, a.Size-len(r.Value)))...)
		switch {
		case a.Cron > 0:
			set("timer-cron", fmt.Sprintf("*/%d * * * * *", a.Cron))
			if a.Due > 0 {
				set("timer-at", strconv.FormatInt(begun.Add(a.Due).UnixMilli(), 10))
			}
		case a.Days > 0:
			set("timer-every", fmt.Sprintf("P%dD", a.Days))
			set("timer-at", strconv.FormatInt(begun.Add(a.Due).AddDate(0, 0, -3*a.Days).UnixMilli(), 10))
		case a.After:
			set("timer-after", millis(max(0, a.Due-a.At)))
		default:
			set("timer-at", strconv.FormatInt(begun.Add(a.Due).UnixMilli(), 10))
		}
		set("timer-target-topic", cmp.Or(a.Target, target))
		set("kept", "as it is")
		if a.Value == "" { // otherwise it is a schedule that may be declared again
			set("timer-labels", fmt.Sprintf("second=%d,at=%d", a.At/time.Second, a.At))
			if a.At%4 == 0 {
				set("timer-labels-header", "labels")
			}
		}
		for i := range a.More {
			set(fmt.Sprint("of-", a.ID, "-", i), a.ID)
		}
		for name, d := range map[string]time.Duration{"timer-max-late": a.MaxLate, "timer-every": a.Every,
			"timer-jitter": a.Jitter, "timer-remember": a.Remember} {
			if d > 0 {
				set(name, millis(d))
			}
		}
		if a.Until > 0 {
			set("timer-until", strconv.FormatInt(begun.Add(a.Until).UnixMilli(), 10))
		}
		if a.Count > 0 {
			set("timer-count", strconv.Itoa(a.Count))
		}
		for name, value := range map[string]string{"timer-not-on": a.NotOn, "timer-shift": string(a.Shift),
			"timer-zone": a.Zone, "timer-catch-up": string(a.CatchUp),
			"timer-target-key": a.Key} {
			if value != "" {
				set(name, value)
			}
		}
		if a.NullKey {
			set("timer-target-key-null", "true")
		}
	case history.Cancels:
		if a.If != "" {
			set("timer-cancel", "true")
		}
	case history.Moves:
		set("timer-at", strconv.FormatInt(begun.Add(a.Due).UnixMilli(), 10))
		set("timer-move", "true")
	case history.Triggers, history.Pauses, history.Resumes:
		set("timer-"+string(a.Action), "true")
	case history.Poison:
		set("timer-target-topic", target)
		switch a.Bad {
		case 0:
			set("timer-at", "tomorrow")
		case 1:
			r.Key = []byte(longID(0, waterclock.MaxIDBytes+1))
		case 2:
			r.Key = nil
		case 3:
			set("timer-at", "\xff")
		case 4:
			set("timer-cancel", "true")
			set("timer-trigger", "true")
		case 5:
			set("timer-cron", "61 * * * *")
		case 6:
			set("timer-cron", "0 0 30 2 *")
		case 7:
			set("timer-cron", strings.Repeat("*/7,", 1000)+"1 * * * *")
		case 8:
			set("timer-cron", "* * * * *")
			set("timer-zone", "../"+strings.Repeat(a.ID, 1+int(a.At%97))) // each another one
		case 9:
			set("timer-at", "2000-01-01T00:00:00Z")
			set("timer-if", a.ID+a.At.String())
		case 10:
			set("timer-every", "1s")
			set("timer-jitter", "-"+a.At.String())
		case 11:
			set("timer-at", "2000-01-01T00:00:00Z")
			set("timer-remember", "8d "+a.ID)
		}
	}
	return r
}
