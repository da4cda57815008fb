package calendar

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// This file is the oracle: a scan of every minute or second that follows the rules literally. It shares nothing with
// the package except the expression's text.

// naive is one field, by value.
type naive [62]bool

func naiveField(t testing.TB, text string, low, high int) (set naive) {
	t.Helper()
	value := func(text string) int {
		for i, name := range strings.Fields("sun mon tue wed thu fri sat") {
			if high == 7 && strings.EqualFold(name, text) {
				return i
			}
		}
		for i, name := range strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec") {
			if high == 12 && strings.EqualFold(name, text) {
				return i + 1
			}
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for item := range strings.SplitSeq(text, ",") {
		if (high == 31 || high == 7) && isRelative.MatchString(item) {
			continue
		}
		span, stepText, stepped := strings.Cut(item, "/")
		step := 1
		if stepped {
			step = value(stepText)
		}
		a, b := low, high
		if span != "*" && span != "?" {
			from, to, isRange := strings.Cut(span, "-")
			a = value(from)
			switch {
			case isRange:
				b = value(to)
			case !stepped:
				b = a
			}
		}
		for n := a; n <= b; n += step {
			set[n] = true
		}
	}
	return set
}

// oracle is an expression that is checked value by value.
type oracle struct {
	second, minute, hour, day, month, weekday naive
	ofMonth, ofWeek                           []func(shown) bool
	either, everyHour                         bool
}

var isRelative = regexp.MustCompile(`^(?i:L|L-\d+|\d+W|LW|\w+L|\w+#\d)$`)

// naiveRelatives are the items of a field for days that a month places anew.
func naiveRelatives(t testing.TB, text string, high int) (all []func(shown) bool) {
	t.Helper()
	for item := range strings.SplitSeq(strings.ToUpper(text), ",") {
		if !isRelative.MatchString(item) {
			continue
		}
		day, which, numbered := strings.Cut(item, "#")
		n := 0
		fmt.Sscanf(strings.TrimPrefix(item, "L-"), "%d", &n)
		switch {
		case numbered:
			weekday := naiveField(t, day, 0, high)
			all = append(all, func(s shown) bool {
				return (weekday[s.weekday] || s.weekday == 0 && weekday[7]) && fmt.Sprint((s.day-1)/7+1) == which
			})
		case high == 7:
			weekday := naiveField(t, strings.TrimSuffix(item, "L"), 0, high)
			all = append(all, func(s shown) bool {
				return (weekday[s.weekday] || s.weekday == 0 && weekday[7]) && s.day+7 > s.last
			})
		case strings.HasSuffix(item, "W"):
			all = append(all, func(s shown) bool { return int(s.day) == s.nearest(n) })
		default:
			all = append(all, func(s shown) bool { return int(s.day) == int(s.last)-n })
		}
	}
	return all
}

// nearest returns the day of the month that is nearest to day n among those from Monday to Friday; 0 if the month has
// no day n. For n = 0 it returns the last one.
func (s shown) nearest(n int) int {
	if n > int(s.last) {
		return 0
	}
	if n == 0 {
		n = 99
	}
	best := 99
	for day := 1; day <= int(s.last); day++ {
		weekday := (int(s.weekday) + day - int(s.day) + 35) % 7
		if weekday != 0 && weekday != 6 && max(day-n, n-day) < max(best-n, n-best) || best == 99 && weekday%6 != 0 {
			best = day
		}
	}
	return best
}

func newOracle(t testing.TB, text string) *oracle {
	t.Helper()
	f := strings.Fields(text)
	if len(f) == 5 {
		f = append([]string{"0"}, f...)
	}
	o := &oracle{
		naiveField(t, f[0], 0, 59), naiveField(t, f[1], 0, 59), naiveField(t, f[2], 0, 23),
		naiveField(t, f[3], 1, 31), naiveField(t, f[4], 1, 12), naiveField(t, f[5], 0, 7),
		naiveRelatives(t, f[3], 31), naiveRelatives(t, f[5], 7),
		!strings.ContainsAny(f[3][:1], "*?") && !strings.ContainsAny(f[5][:1], "*?"), true,
	}
	o.weekday[0] = o.weekday[0] || o.weekday[7]
	for h := range 24 {
		o.everyHour = o.everyHour && o.hour[h]
	}
	return o
}

// shown is what a clock shows.
type shown struct {
	second, minute, hour, day, month, weekday uint8
	last                                      uint8 // day of the month
}

func show(t time.Time) shown {
	return shown{uint8(t.Second()), uint8(t.Minute()), uint8(t.Hour()), uint8(t.Day()), uint8(t.Month()),
		uint8(t.Weekday()), uint8(time.Date(t.Year(), t.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day())}
}

func (o *oracle) matches(s shown) bool {
	return o.matchesMinute(s) && o.matchesHour(s)
}

func (o *oracle) matchesMinute(s shown) bool { return o.minute[s.minute] && o.second[s.second] }

// matchesHour checks everything except minute and second.
func (o *oracle) matchesHour(s shown) bool {
	if !o.hour[s.hour] || !o.month[s.month] {
		return false
	}
	is := func(names func(shown) bool) bool { return names(s) }
	day := o.day[s.day] || slices.ContainsFunc(o.ofMonth, is)
	weekday := o.weekday[s.weekday] || slices.ContainsFunc(o.ofWeek, is)
	if o.either {
		return day || weekday
	}
	return day && weekday
}

// tick is one instant of the scan. It takes 9 bytes, because a scan of ten years has 5 million.
type tick struct {
	shown
	repeat bool // an earlier instant showed the same
	skips  bool // the clock skipped something just before
}

// ticks is a scan: every minute or second from a first instant.
type ticks struct {
	from, step int64
	list       []tick
	hours      []int           // ticks at which the hour changes or something was skipped
	skipped    map[int][]shown // what the clock skipped before a tick
}

// scan walks through a time in steps of a minute or a second.
func scan(loc *time.Location, from, to, step int64) *ticks {
	seen := func(at int64) int64 { // returns what is shown, as a number
		_, offset := time.Unix(at, 0).In(loc).Zone()
		return at + int64(offset)
	}
	s := &ticks{from, step, make([]tick, 0, (to-from)/step+1), nil, make(map[int][]shown)}
	latest := seen(from - step)
	for back := int64(1); back < 2*86400/step; back++ {
		latest = max(latest, seen(from-back*step))
	}
	for at := from; at <= to; at += step {
		is := seen(at)
		var skipped []shown
		for at := latest + step; at < is; at += step {
			skipped = append(skipped, show(time.Unix(at, 0).UTC()))
		}
		if skipped != nil {
			s.skipped[len(s.list)] = skipped
		}
		n := len(s.list)
		s.list = append(s.list, tick{show(time.Unix(is, 0).UTC()), is <= latest, skipped != nil})
		if n == 0 || skipped != nil || s.list[n].hourly() != s.list[n-1].hourly() {
			s.hours = append(s.hours, n)
		}
		latest = max(latest, is)
	}
	return s
}

// hourly reduces a reading to its hour.
func (s shown) hourly() shown {
	s.minute, s.second = 0, 0
	return s
}

// instants returns the ticks at which an expression comes. Most hours do not match an expression, and then none of
// their ticks does.
func (o *oracle) instants(ticks *ticks, into []int64) []int64 {
	for n, begin := range ticks.hours {
		end := len(ticks.list)
		if n+1 < len(ticks.hours) {
			end = ticks.hours[n+1]
		}
		first := ticks.list[begin]
		hour := o.matchesHour(first.shown)
		skipped := first.skips && !o.everyHour && slices.ContainsFunc(ticks.skipped[begin], o.matches)
		for i := begin; i < end && (hour || skipped); i++ {
			k := &ticks.list[i]
			if hour && o.matchesMinute(k.shown) && (o.everyHour || !k.repeat) || skipped && i == begin {
				into = append(into, ticks.from+int64(i)*ticks.step)
			}
		}
	}
	return into
}

type oracleZone struct {
	name string
	from int // year
}

// oracleZones are zones whose clocks have been changed in all known odd ways. The years are the start of the ten years
// that are scanned.
var oracleZones = []oracleZone{
	{"UTC", 2020}, {"Europe/Berlin", 2021}, {"America/New_York", 2028}, {"America/Havana", 2004},
	{"Asia/Beirut", 2017}, {"Australia/Lord_Howe", 2023}, {"Pacific/Apia", 2005}, {"Africa/Casablanca", 2012},
	{"Asia/Gaza", 2008}, {"Asia/Tehran", 2015}, {"Asia/Kathmandu", 1980}, {"America/Sao_Paulo", 2010},
	{"America/Asuncion", 2016}, {"America/Scoresbysund", 2018}, {"Antarctica/Troll", 2014}, {"Pacific/Chatham", 2030},
	{"America/St_Johns", 2003}, {"Asia/Pyongyang", 2012}, {"America/Caracas", 2007}, {"Africa/Cairo", 2010},
	{"Pacific/Kiritimati", 1990}, {"Pacific/Kwajalein", 1988}, {"Europe/Dublin", 2090}, {"Africa/Lagos", 2026},
}

// scanned returns the zones that are scanned.
func scanned() []oracleZone {
	if testing.Short() {
		return oracleZones[:8]
	}
	return oracleZones
}

// generated draws an expression that some date matches.
func generated(rng *rand.Rand, fields int) string {
	for {
		f := []string{
			drawField(rng, 0, 59, nil), drawField(rng, 0, 59, nil), drawField(rng, 0, 23, nil),
			drawField(rng, 1, 31, nil),
			drawField(rng, 1, 12, strings.Fields("JAN feb Mar apr may jun jul aug sep oct nov dec")),
			drawField(rng, 0, 7, strings.Fields("sun MON Tue wed thu fri sat")),
		}
		// Most expressions that people write have stars on the right.
		for i := 3; i < 6; i++ {
			if rng.IntN(3) > 0 {
				f[i] = "*"
			}
		}
		text := strings.Join(f[6-fields:], " ")
		if _, err := Parse(text); err == nil {
			return text
		}
	}
}

func drawField(rng *rand.Rand, low, high int, names []string) string {
	value := func() (int, string) {
		n := low + rng.IntN(high-low+1)
		if i := n - low; i < len(names) && rng.IntN(2) == 0 {
			return n, names[i]
		}
		return n, strconv.Itoa(n)
	}
	var items []string
	for range 1 + rng.IntN(3)*rng.IntN(2) {
		n, text := value()
		m, end := value()
		switch rng.IntN(8) {
		case 6:
			switch high {
			case 7:
				text = fmt.Sprint(text, "#", 1+rng.IntN(5))
			case 31:
				text += "W"
			}
		case 7:
			switch high {
			case 7:
				text += "L"
			case 31:
				text = []string{"L", "LW", fmt.Sprint("L-", 1+rng.IntN(30))}[rng.IntN(3)]
			}
		case 0:
			text = "*"
		case 1:
			text = fmt.Sprint("*/", 1+rng.IntN(high-low))
		case 2:
			if n <= m {
				text += "-" + end
			}
		case 3:
			if n <= m {
				text += "-" + end + fmt.Sprint("/", 1+rng.IntN(high-low))
			}
		}
		items = append(items, text)
	}
	return strings.Join(items, ",")
}

// always are expressions that are tested in every zone.
var always = []string{
	"* * * * *", "0 0 * * *", "30 0 * * *", "30 1 * * *", "0 2 * * *", "30 2 * * *", "*/15 1-3 * * *", "0 * * * *",
	"45 0-23 * * *",
	"59 23 * * *", "0 0 29 2 *", "0 12 13 * fri", "0 0 */2 * 1", "0 0 31 * *", "30 23 30 12 *", "0 0 1-7 * */7",
	"15,45 */2 * * *", "0 17 LW * *", "30 2 L * *", "0 9 15W * *", "30 1 * * friL", "0 0 * * mon#1,mon#3",
	"0 3 L-2 * sun#2",
}

// TestInstantsAgainstAScan compares instants with a scan of every minute. By default it scans one year of each zone and
// few expressions; with WATERCLOCK_SLOW_TESTS=all, ten years and 200.
func TestInstantsAgainstAScan(t *testing.T) {
	years, random := 1, 8
	if runs.Full() {
		years, random = 10, 200-len(always)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i, z := range scanned() {
		t.Run(z.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			first := z.from + rng.IntN(11-years)
			from, to := time.Date(first, 1, 1, 0, 0, 0, 0, time.UTC).Unix(),
				time.Date(first+years, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
			c := newComparison(t, z.name, from, to, 60)
			for _, text := range always {
				c.compare(t, rng, text)
			}
			for range random {
				c.compare(t, rng, generated(rng, 5))
			}
			t.Logf("%d instants of %d expressions, %d minutes", c.instants, len(always)+random, len(c.ticks.list))
		})
	}
}

// TestOracleSeconds does the same second by second, for six fields, around each clock change.
func TestOracleSeconds(t *testing.T) {
	changes, random := 1, 10
	if runs.Full() {
		changes, random = 20, 100
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i, z := range scanned() {
		t.Run(z.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			loc, err := LoadZone(z.name)
			if err != nil {
				t.Fatal(err)
			}
			first := time.Date(z.from, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
			list := Changes(loc, first, first+10*366*daySeconds, changes)
			for _, at := range append(list, Change{At: first + rng.Int64N(10*365*daySeconds)}) {
				const around = 30 * hourSeconds
				c := newComparison(t, z.name, at.At-around, at.At+around, 1)
				for range random {
					c.compare(t, rng, generated(rng, 6))
				}
			}
		})
	}
}

// comparison is the state of one scan.
type comparison struct {
	name     string
	loc      *time.Location
	from, to int64
	ticks    *ticks
	changes  []Change
	near     map[int64]bool // days within two days of a change, counted from 1970-01-01 in UTC
	want     []int64
	instants int
}

func newComparison(t *testing.T, name string, from, to, step int64) *comparison {
	t.Helper()
	loc, err := LoadZone(name)
	if err != nil {
		t.Fatal(err)
	}
	c := &comparison{
		name: name, loc: loc, from: from, to: to, ticks: scan(loc, from, to, step),
		changes: Changes(loc, from, to, math.MaxInt), near: make(map[int64]bool),
	}
	for _, change := range c.changes {
		for day := int64(-2); day <= 2; day++ {
			c.near[change.At/daySeconds+day] = true
		}
	}
	return c
}

const (
	// A day with at least oftenADay instants is checked as a whole, unless it is one of every wholeDays days. Ten years
	// have 114 of those.
	oftenADay = 6
	wholeDays = 32
)

// rest returns how many instants after number i may be checked as a whole: the rest of that day if it has many instants
// and no clock change is near. Only the date distinguishes such days, so the test compares just the first instant, the
// last instant and the number of instants. To check every instant of every day took most of the time of all tests.
func (c *comparison) rest(i int) int {
	day := c.want[i] / daySeconds
	if c.near[day] || day%wholeDays == 0 {
		return 0
	}
	n, _ := slices.BinarySearch(c.want[i:], (day+1)*daySeconds)
	if n < oftenADay {
		return 0
	}
	return n - 1
}

// compare checks all results of a schedule against the scan.
func (c *comparison) compare(t *testing.T, rng *rand.Rand, text string) {
	t.Helper()
	e, err := Parse(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	c.want = newOracle(t, text).instants(c.ticks, c.want[:0])
	c.instants += len(c.want)
	s, interval := e.In(c.loc), e.Interval()
	at := c.from - 1
	for i := 0; i < len(c.want); i++ {
		want := c.want[i]
		got, reading := s.Next(at)
		if got != want {
			t.Fatalf("%q in %s behind %s: got %s, want %s", text, c.name, c.say(at), c.say(got), c.say(want))
		}
		if again := s.Again(got, reading); again != got {
			t.Fatalf("%q in %s: what comes at %s comes at %s when asked again", text, c.name, c.say(got), c.say(again))
		}
		if i > 0 && got-at < interval && c.calm(at, got) {
			t.Fatalf("%q in %s: %s and %s, the interval is %d s", text, c.name, c.say(at), c.say(got), interval)
		}
		at = got
		if n := c.rest(i); n > 0 {
			i += n
			if got := s.Count(at, c.want[i]); got != int64(n) {
				t.Fatalf("%q in %s behind %s up to %s: counts %d, want %d", text, c.name, c.say(at),
					c.say(c.want[i]), got, n)
			}
			if got, _ := s.Last(c.want[i], at); got != c.want[i] {
				t.Fatalf("%q in %s up to %s: the last is %s", text, c.name, c.say(c.want[i]), c.say(got))
			}
			at = c.want[i]
		}
	}
	if got, _ := s.Next(at); got <= c.to {
		t.Fatalf("%q in %s behind %s: got %s, want none up to %s", text, c.name, c.say(at), c.say(got), c.say(c.to))
	}
	for i := range 30 {
		a := c.from - 1 + rng.Int64N(c.to-c.from)
		if i%2 == 0 && len(c.changes) > 0 { // also from within an hour that comes twice
			a = c.changes[rng.IntN(len(c.changes))].At + rng.Int64N(8*hourSeconds) - 4*hourSeconds
			a = max(c.from-1, min(a, c.to))
		}
		b := a + rng.Int64N(c.to-a+1)
		if i%3 == 0 {
			b = min(a+rng.Int64N(daySeconds), c.to)
		}
		i, _ := slices.BinarySearch(c.want, a+1)
		end, _ := slices.BinarySearch(c.want, b+1)
		between := c.want[i:end] // after a, up to b
		n, last, any := int64(len(between)), int64(0), len(between) > 0
		if any {
			last = between[n-1]
		}
		if got, _ := s.Next(a); got <= b != any || any && got != between[0] {
			t.Fatalf("%q in %s behind %s: got %s", text, c.name, c.say(a), c.say(got))
		}
		if got := s.Count(a, b); got != n {
			t.Fatalf("%q in %s behind %s up to %s: counts %d, want %d", text, c.name, c.say(a), c.say(b), got, n)
		}
		if got, ok := s.Last(b, a); ok != any || ok && got != last {
			t.Fatalf("%q in %s behind %s up to %s: last is %s, %v, want %s, %v", text, c.name, c.say(a), c.say(b),
				c.say(got), ok, c.say(last), any)
		}
		if n > 0 {
			want := between[rng.Int64N(n)]
			k := s.Count(a, want)
			if got := s.nth(k, a, b); got != want {
				t.Fatalf("%q in %s behind %s: number %d is %s, want %s", text, c.name, c.say(a), k, c.say(got),
					c.say(want))
			}
		}
	}
}

// calm reports whether the clock is not changed between two instants or on the day before.
func (c *comparison) calm(from, to int64) bool {
	return len(Changes(c.loc, from-maxSetBack, to, 1)) == 0
}

func (c *comparison) say(at int64) string {
	return time.Unix(at, 0).In(c.loc).Format("2006-01-02T15:04:05Z07:00")
}
