package service

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/upcoming"
)

var descDueWithin = prometheus.NewDesc("waterclock_due_within", "Pending timers of owned partitions that fall due within the window from now. Exact but for the last second of the window, of which a part is taken. Paused, parked and overdue timers do not count. Counting takes some seconds after an acquisition, a minute with ten millions in the hour.", []string{"topic", "window"}, nil)

// forecastCollector shows how many timers fall due soon.
type forecastCollector struct {
	partitions *partitions
	topics     *servedTopics
}

// Describe implements prometheus.Collector.
func (c *forecastCollector) Describe(ch chan<- *prometheus.Desc) { ch <- descDueWithin }

// Collect implements prometheus.Collector.
func (c *forecastCollector) Collect(ch chan<- prometheus.Metric) {
	all := make(map[string]*upcoming.Due)
	for name, t := range c.topics.byName {
		if !t.delayed() {
			all[name] = new(upcoming.Due)
		}
	}
	for at, served := range c.partitions.all() {
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
			ch <- prometheus.MustNewConstMetric(descDueWithin, prometheus.GaugeValue, float64(n), topic, window(upcoming.Windows[i]))
		}
	}
}

// window is how the metric calls a time: 10s, 1m, 10m, 1h.
func window(d time.Duration) string {
	for _, unit := range []struct {
		name string
		d    time.Duration
	}{{"h", time.Hour}, {"m", time.Minute}} {
		if d%unit.d == 0 {
			return strconv.Itoa(int(d/unit.d)) + unit.name
		}
	}
	return strconv.Itoa(int(d/time.Second)) + "s"
}
