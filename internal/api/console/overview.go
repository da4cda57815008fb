package console

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/recent"
)

const (
	barsOfDue = 12
	// figuresOfNow is the time over which current figures are taken.
	figuresOfNow = time.Minute
)

// ahead is a span of time, from now on, that a histogram shows.
type ahead struct {
	Name, Label string
	Long        time.Duration
	Layout      string // of the times under its bars
}

func aheads() []ahead {
	return []ahead{
		{"minute", "next minute", time.Minute, "15:04:05"},
		{"hour", "next hour", time.Hour, "15:04"},
		{"day", "next day", 24 * time.Hour, "15:04"},
	}
}

type overviewPage struct {
	Cluster *api.Cluster
	Wrong   *api.Problem // instead of Cluster
	Health  health
	Dead    deadNews
	Refused *deadNews // those of the last hour whose target did not exist; nil: unknown
	Owners  []ownerRow
	States  []string // columns of Owners

	Recent   *recent.Point // nil: there is no data yet
	Charts   []chart
	Remember bool // there is a history

	Topic    string
	Topics   []string
	Due      duePanel
	NoTopics *api.Problem // instead of Due
	Example  []command    // first steps; nil: something is pending, or has fired lately
}

// health is shown first.
type health struct {
	Live, All int
	NotLive   []api.OwnedPartition // the first few
	NotKnown  []string             // instances that did not respond
	Well      bool
}

type ownerRow struct {
	Owner  string
	Counts []int // by state
	Total  int
}

type duePanel struct {
	Totals []dueTotal
	plot
	Bars    []bar
	Wrong   *api.Problem
	Missing []api.Missing // partitions that are not counted
	Layout  string
}

// deadNews has the new dead letters of all topics: see newLetters.
type deadNews struct {
	Known    bool // there are new ones, or certainly none
	N        int64
	More     bool // there are more than N
	Reviewed bool // N counts only letters that have not been reviewed
	Hour     bool // N counts only letters of the last hour
	Topics   []deadTopic
}

type deadTopic struct {
	Topic, Problem string
	Reasons        []newReason
}

// newsOf returns the topics with new dead letters, and those that cannot be read.
func newsOf(all *api.DeadLetterCountList) (n deadNews) {
	if all == nil {
		return n
	}
	n.Known, n.Reviewed, n.Hour = true, true, true
	for i := range all.Topics {
		t := &all.Topics[i]
		fresh := newLettersOf(t)
		n.N, n.More = n.N+fresh.N, n.More || fresh.More
		if t.New != nil {
			n.Hour, n.Known = false, n.Known && (t.New.Exact || fresh.N > 0)
		} else if fresh.N > 0 {
			n.Reviewed = false
		}
		if fresh.N > 0 || t.Problem != "" {
			n.Topics = append(n.Topics, deadTopic{t.Topic, t.Problem, fresh.Reasons})
		}
	}
	n.Reviewed = n.Reviewed && !n.Hour
	return n
}

// refusedOf counts the dead letters of the last hour whose target did not exist.
func refusedOf(all *api.DeadLetterCountList) *deadNews {
	if all == nil {
		return nil
	}
	n := &deadNews{Known: true}
	for _, t := range all.Topics {
		n.More = n.More || !t.Exact
		for _, r := range t.Reasons {
			switch waterclock.Reason(r.Reason) {
			case waterclock.ReasonTargetUnknown, waterclock.ReasonTargetPartitionUnknown:
				n.N += r.LastHour
			}
		}
	}
	return n
}

type dueTotal struct {
	ahead
	Count api.CountUntil
	On    bool
}

const maxNotLive = 8

func (c *Console) overview(v *visit) error {
	if v.narrow() {
		return c.home(v)
	}
	p := &overviewPage{}
	cluster := &api.Cluster{}
	if err := v.ask(call{path: []string{"cluster"}}, cluster); err != nil {
		p.Wrong = asProblem(err)
	} else {
		p.Cluster, p.Health = cluster, healthOf(cluster)
		p.States, p.Owners = byOwner(cluster.Partitions)
	}
	p.Dead, p.Refused = newsOf(v.deadLetters()), refusedOf(v.deadLetters())
	var err error
	if p.Topic, p.Topics, err = v.chosen(); err != nil {
		p.NoTopics = asProblem(err)
	} else if p.Topic != "" {
		p.Due = v.due(p.Topic, v.within(p.Topic, ""), cmp.Or(v.query("ahead"), "hour"))
	}
	// Callers who may see the cluster also see the activity of this instance, even while the cluster does not
	// respond.
	if c.o.History != nil && (p.Wrong == nil || p.Wrong.Status != http.StatusForbidden) {
		p.Remember = true
		p.remember(c.o.History, v.zone)
	}
	idle := p.Recent == nil || p.Recent.Fired == 0
	if idle && p.Topic != "" && p.Cluster != nil && p.Cluster.Pending == 0 && p.Cluster.Unknown == 0 {
		p.Example = v.first(p.Topic)
	}
	return v.show(nil, "overview", "Overview", p)
}

func healthOf(c *api.Cluster) health {
	h := health{All: len(c.Partitions)}
	for _, p := range c.Partitions {
		if p.State == "live" {
			h.Live++
		} else if len(h.NotLive) < maxNotLive {
			h.NotLive = append(h.NotLive, p)
		}
	}
	for _, in := range c.Instances {
		if in.Problem != "" {
			h.NotKnown = append(h.NotKnown, in.Name+": "+in.Problem)
		}
	}
	h.Well = h.Live == h.All && len(c.Unhealthy) == 0 && len(h.NotKnown) == 0
	return h
}

// byOwner counts partitions by owner and state.
func byOwner(all []api.OwnedPartition) (states []string, rows []ownerRow) {
	for _, p := range all {
		if !slices.Contains(states, p.State) {
			states = append(states, p.State)
		}
	}
	slices.SortFunc(states, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	for _, p := range all {
		i := slices.IndexFunc(rows, func(r ownerRow) bool { return r.Owner == p.Owner })
		if i < 0 {
			i, rows = len(rows), append(rows, ownerRow{Owner: p.Owner, Counts: make([]int, len(states))})
		}
		rows[i].Counts[slices.Index(states, p.State)]++
		rows[i].Total++
	}
	slices.SortFunc(rows, func(a, b ownerRow) int { return cmp.Compare(a.Owner, b.Owner) })
	return states, rows
}

// rank sorts live first.
func rank(state string) int {
	if state == "live" {
		return 0
	}
	return 1
}

// due counts the timers to come whose IDs begin with a prefix, with one call of the API.
func (v *visit) due(topic, prefix, chosen string) duePanel {
	all := aheads()
	i := max(0, slices.IndexFunc(all, func(a ahead) bool { return a.Name == chosen }))
	d, now := duePanel{Layout: all[i].Layout}, v.now.In(v.zone)
	each := all[i].Long / barsOfDue
	var until []time.Time
	for n := range barsOfDue {
		until = append(until, now.Add(time.Duration(n+1)*each))
	}
	for n, a := range all {
		d.Totals = append(d.Totals, dueTotal{ahead: a, On: n == i})
		until = append(until, now.Add(a.Long))
	}
	before, missing, wrong := v.firesBefore(topic, prefix, until)
	d.Missing = missing
	if wrong != nil {
		d.Wrong = wrong
		return d
	}
	var below api.CountUntil // 0, so overdue timers fall into the first bar
	for n := range barsOfDue {
		b := before[n]
		d.Bars = append(d.Bars,
			bar{From: now.Add(time.Duration(n) * each), To: until[n], N: b.Count - below.Count, More: !b.Exact})
		below = b
	}
	for n := range d.Totals {
		d.Totals[n].Count = before[barsOfDue+n]
	}
	d.bars(d.Bars, d.Layout)
	return d
}

// firesBefore returns the numbers of timers with a prefix that fire before some instants, which may be in any order.
// missing are the partitions that are not counted.
func (a *asker) firesBefore(
	topic, prefix string, until []time.Time,
) (_ []api.CountUntil, missing []api.Missing, _ *api.Problem) {
	sorted := slices.SortedFunc(slices.Values(until), time.Time.Compare)
	texts := make([]string, len(sorted))
	for i, at := range sorted {
		texts[i] = strconv.FormatInt(at.UnixMilli(), 10)
	}
	var n api.TimerCount
	q := url.Values{"until": {strings.Join(texts, ",")}}
	if prefix != "" {
		q.Set("prefix", prefix)
	}
	err := a.ask(call{path: []string{"topics", topic, "timers", "count"}, query: q}, &n)
	if err == nil && len(n.Until) != len(sorted) {
		err = errors.New("the API returned counts for other instants")
	}
	if err != nil {
		return nil, nil, asProblem(err)
	}
	counts := make([]api.CountUntil, len(until))
	for i, at := range until {
		counts[i] = n.Until[slices.IndexFunc(sorted, at.Equal)]
	}
	return counts, n.Missing, nil
}

// remember draws charts of the last hour.
func (o *overviewPage) remember(h *recent.History, zone *time.Location) {
	last, some := h.Last(figuresOfNow)
	if !some {
		return
	}
	o.Recent = &last
	points := h.Points()
	for i := range points {
		points[i].From, points[i].To = points[i].From.In(zone), points[i].To.In(zone)
	}
	per := func(n float64) string { return number(n) + " /s" }
	rates := lineChart(points, 1, per,
		series{"scheduled", per(last.Accepted), "b", func(p recent.Point) float64 { return p.Accepted }},
		series{"fired", per(last.Fired), "a", func(p recent.Point) float64 { return p.Fired }})
	rates.Title = "Throughput"
	rates.Summary = "Timers a second over the last hour; in the last minute " + number(last.Accepted) +
		" scheduled and " + number(last.Fired) + " fired."
	late := lineChart(points, 0.004, seconds,
		series{"p50", lateness(last, last.P50), "b", func(p recent.Point) float64 { return p.P50.AtMost() }},
		series{"p99", lateness(last, last.P99), "a", func(p recent.Point) float64 { return p.P99.AtMost() }})
	late.Title = "Own lateness, at most"
	late.Summary = "Own lateness over the last hour; in the last minute half of the firings were late by " +
		lateness(last, last.P50) + ", and 99 of 100 by " + lateness(last, last.P99) + " at most."
	o.Charts = append(o.Charts, rates, late)
}

// lateness describes a quantile in words. Only the bounds of its bucket are known.
func lateness(p recent.Point, q recent.Bounds) string {
	switch {
	case p.Count > 0:
	case p.Fired > 0: // missed or steered timers, or some that waited for their target
		return "none counts"
	default:
		return "nothing fired"
	}
	return bounds(q)
}

// bounds returns the bounds of a bucket in words.
func bounds(q recent.Bounds) string {
	switch {
	case math.IsInf(q.UpTo, 1):
		return "more than " + seconds(q.Over)
	case q.Over == 0:
		return "up to " + seconds(q.UpTo)
	}
	over, _, _ := strings.Cut(seconds(q.Over), " ")
	upTo, unit, _ := strings.Cut(seconds(q.UpTo), " ")
	if seconds(q.Over) != over+" "+unit {
		over = seconds(q.Over)
	}
	return over + " to " + upTo + " " + unit
}
