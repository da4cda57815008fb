package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/waterclock/waterclock/internal/api"
)

const (
	barsOfDue = 12
	// recent is how many samples the figures of now span: a minute.
	recent = perPoint
)

// span of time ahead that a histogram shows.
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
	Now     time.Time
	Cluster *api.Cluster
	Wrong   *api.Problem // instead of Cluster
	Health  health
	Owners  []ownerRow
	States  []string // columns of Owners

	Recent   *Point // nil: nothing is known yet
	Charts   []chart
	Remember bool // there is a history

	Topic    string
	Topics   []string
	Due      duePanel
	NoTopics *api.Problem // instead of Due
}

// health is what is worth knowing first.
type health struct {
	Live, All int
	NotLive   []api.OwnedPartition // the first few
	NotKnown  []string             // instances that could not be asked
	Well      bool
}

type ownerRow struct {
	Owner  string
	Counts []int // by state
	Total  int
}

type duePanel struct {
	Ahead  string
	Totals []dueTotal
	Bars   []bar
	Top    int64
	Left   string
	Right  string
	Wrong  *api.Problem
	Layout string
}

type dueTotal struct {
	ahead
	Count api.TimerCount
	Wrong *api.Problem
	On    bool
}

const maxNotLive = 8

func (c *Console) overview(v *visit) {
	p := &overviewPage{Now: v.now}
	cluster := &api.Cluster{}
	if err := v.ask(call{path: []string{"v1", "cluster"}}, cluster); err != nil {
		p.Wrong = asProblem(err)
	} else {
		p.Cluster, p.Health = cluster, healthOf(cluster)
		p.States, p.Owners = byOwner(cluster.Partitions)
	}
	var err error
	if p.Topic, p.Topics, err = v.chosen(); err != nil {
		p.NoTopics = asProblem(err)
	} else if p.Topic != "" {
		p.Due = v.due(p.Topic, cmp.Or(v.query("ahead"), "hour"))
	}
	if c.o.History != nil {
		p.Remember = true
		p.remember(c.o.History)
	}
	v.show(http.StatusOK, "overview", "Overview", p)
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
			h.NotKnown = append(h.NotKnown, in.Name)
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

// rank has live come first.
func rank(state string) int {
	if state == "live" {
		return 0
	}
	return 1
}

// due counts what is to come, one call for each bar.
func (v *visit) due(topic, chosen string) duePanel {
	all := aheads()
	i := max(0, slices.IndexFunc(all, func(a ahead) bool { return a.Name == chosen }))
	d := duePanel{Ahead: all[i].Name, Layout: all[i].Layout}
	for n, a := range all {
		t := dueTotal{ahead: a, On: n == i}
		t.Count, t.Wrong = v.count(topic, v.now, v.now.Add(a.Long))
		d.Totals = append(d.Totals, t)
	}
	each := all[i].Long / barsOfDue
	for n := range barsOfDue {
		from := v.now.Add(time.Duration(n) * each)
		b := bar{From: from, To: from.Add(each)}
		count, wrong := v.count(topic, b.From, b.To)
		if wrong != nil {
			d.Wrong, d.Bars = wrong, nil
			return d
		}
		b.N, b.More = count.Count, !count.Exact
		d.Bars = append(d.Bars, b)
	}
	d.Top = bars(d.Bars)
	d.Left, d.Right = v.now.Format(d.Layout), v.now.Add(all[i].Long).Format(d.Layout)
	return d
}

func (v *visit) count(topic string, from, to time.Time) (n api.TimerCount, wrong *api.Problem) {
	err := v.ask(call{path: []string{"v1", "topics", topic, "timers", "count"}, query: url.Values{
		"due-after": {strconv.FormatInt(from.UnixMilli(), 10)}, "due-before": {strconv.FormatInt(to.UnixMilli(), 10)},
	}}, &n)
	if err != nil {
		return n, asProblem(err)
	}
	return n, nil
}

// remember draws the last hour.
func (p *overviewPage) remember(h *History) {
	last, some := h.Last(recent)
	if !some {
		return
	}
	p.Recent = &last
	points := h.Points()
	rates, top := lines(p.Now, points, 1, func(p Point) float64 { return p.Accepted }, func(p Point) float64 { return p.Fired })
	p.Charts = append(p.Charts, chart{
		Title: "Throughput", Top: number(top) + " /s",
		Summary: "Timers a second over the last hour; in the last minute " + number(last.Accepted) + " scheduled and " + number(last.Fired) + " fired.",
		Lines: []line{
			{"scheduled", number(last.Accepted) + " /s", "b", rates[0]},
			{"fired", number(last.Fired) + " /s", "a", rates[1]},
		},
	})
	late, slowest := lines(p.Now, points, 0.01, func(p Point) float64 { return p.P50 }, func(p Point) float64 { return p.P99 })
	p.Charts = append(p.Charts, chart{
		Title: "Lateness", Top: seconds(slowest),
		Summary: "Lateness over the last hour; in the last minute half were at most " + seconds(last.P50) + " late, and 99 of 100 " + seconds(last.P99) + ".",
		Lines: []line{
			{"p50", lateness(last, last.P50), "b", late[0]},
			{"p99", lateness(last, last.P99), "a", late[1]},
		},
	})
}

// lateness is a quantile in words.
func lateness(p Point, q float64) string {
	if p.Count == 0 {
		return "nothing fired"
	}
	return seconds(q)
}
