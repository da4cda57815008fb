package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/partition/upcoming"
)

var descDueWithin = prometheus.NewDesc("waterclock_due_within", "Pending timers of owned partitions that fall due "+
	"within the window from now. Exact but for the last second of the window, of which a part is taken. Of a "+
	"recurring timer the next occurrence counts. Paused, parked and overdue timers do not. Counting takes some "+
	"seconds after an acquisition, a minute with ten millions in the hour.", []string{"topic", "window"}, nil)

// forecast shows how many timers fall due soon.
func (sc *stateCollector) forecast(ch chan<- prometheus.Metric) {
	all := make(map[string]*upcoming.Due)
	for name := range sc.topics.requests() {
		all[name] = new(upcoming.Due)
	}
	for at, served := range sc.partitions.all() {
		p, ok := served.(*partition.Partition)
		if !ok {
			continue
		}
		for i, n := range p.Upcoming() {
			all[at.Topic][i] += n
		}
	}
	for topic, due := range all {
		for i, n := range due {
			ch <- prometheus.MustNewConstMetric(descDueWithin, prometheus.GaugeValue, float64(n), topic,
				span.String(upcoming.Windows[i]))
		}
	}
}
