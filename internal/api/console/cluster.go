package console

import (
	"cmp"
	"slices"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/route"
)

// maxRows bounds a table of partitions.
const maxRows = 1000

type clusterPage struct {
	*api.Cluster
	Left int // partitions that are not shown
	Only string
}

func (c *Console) cluster(v *visit) error {
	p := &clusterPage{Cluster: &api.Cluster{}, Only: v.query("only")}
	if err := v.ask(call{path: []string{"cluster"}}, p.Cluster); err != nil {
		return err
	}
	if p.Only == "not-live" {
		p.Partitions = slices.DeleteFunc(p.Partitions, func(one api.OwnedPartition) bool { return one.State == "live" })
	}
	if n := len(p.Partitions); n > maxRows {
		p.Partitions, p.Left = p.Partitions[:maxRows], n-maxRows
	}
	return v.show(nil, "cluster", "Cluster", p)
}

// pace returns what is known of the rate for which a timer waits; nil: nothing, or nothing that the caller may know.
func (v *visit) pace(t *api.Timer) *route.DeferredTarget {
	var c api.Cluster
	if v.ask(call{path: []string{"cluster"}}, &c) != nil {
		return nil
	}
	i := slices.IndexFunc(c.Deferred, func(d route.DeferredTarget) bool {
		return d.Target == t.Target.Topic && (d.Topic == "" || d.Topic == t.Topic)
	})
	if i < 0 {
		return nil
	}
	return &c.Deferred[i]
}

type topicsPage struct {
	Rows  []topicRow
	Wrong *api.Problem
	Note  *api.Problem // the reason why partitions are not shown: not every caller may see the cluster
}

// topicRow is a request topic, or a fixed-delay topic.
type topicRow struct {
	Name       string
	Delay      bool
	Partitions int // known ones
	Live       int
	Pending    int64
	Parked     int64
	Lag        int64
	OldestSecs float64
	Unknown    int // partitions with an unknown number of overdue timers
	Dead       *api.DeadLetterCounts
}

// topicsOf shows all topics, by name.
func (c *Console) topicsOf(v *visit) error {
	p := &topicsPage{}
	rows := make(map[string]*topicRow)
	row := func(name string, delay bool) *topicRow {
		if rows[name] == nil {
			rows[name] = &topicRow{Name: name, Delay: delay}
		}
		return rows[name]
	}
	all, err := v.topics()
	if err != nil {
		p.Wrong = asProblem(err)
	}
	for _, t := range all {
		row(t.Topic, false).Partitions = int(t.Partitions)
	}
	if dead := v.deadLetters(); dead != nil {
		for _, t := range dead.Topics {
			row(t.Topic, t.FixedDelay).Dead = &t
		}
	}
	var cluster api.Cluster
	if err := v.ask(call{path: []string{"cluster"}}, &cluster); err != nil {
		p.Note = asProblem(err)
	}
	known := make(map[string]int)
	for _, part := range cluster.Partitions {
		r := row(part.Topic, part.FixedDelay)
		known[part.Topic]++
		r.Partitions = max(r.Partitions, known[part.Topic])
		if part.State == "live" {
			r.Live++
		}
		if part.OldestUnknown {
			r.Unknown++
		}
		r.Pending, r.Parked, r.Lag = r.Pending+part.Pending, r.Parked+part.Parked, r.Lag+part.LagRecords
		r.OldestSecs = max(r.OldestSecs, part.OldestDueSecs)
	}
	for _, r := range rows {
		p.Rows = append(p.Rows, *r)
	}
	slices.SortFunc(p.Rows, func(x, y topicRow) int { return cmp.Compare(x.Name, y.Name) })
	return v.show(p.Wrong, "topics", "Topics", p)
}
