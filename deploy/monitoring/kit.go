// Package monitoring is the list of alerts and dashboard panels that waterclock is delivered with.
//
//	rules, err := monitoring.Rules() // deploy/prometheus/rules.yaml
//
// deploy/prometheus/rules.yaml and deploy/grafana/*.json are generated from the list ("go generate
// ./deploy/monitoring"). The tests compare the list with docs/RUNBOOK.md, which has a section for each alert, with
// the metrics in docs/METRICS.md, and with the labels in the code. The module in deploy/check evaluates the rules
// with Prometheus' own packages. The package itself is only text and does not depend on the service.
package monitoring

//go:generate go run ./gen

import "time"

// Severity is the urgency of an alert.
type Severity string

const (
	// Critical means that timers do not fire, or that requests are lost or soon will be. Wake somebody up.
	Critical Severity = "critical"
	// Warning means that something is wrong that timers survive. Look at it during the day.
	Warning Severity = "warning"
)

// Alert is one alerting rule.
type Alert struct {
	Name     string        // in CamelCase; also the heading of its section in docs/RUNBOOK.md
	Expr     string        // PromQL; the alert fires for each series of the result
	For      time.Duration // how long the result must last; 0: the alert fires immediately
	Severity Severity
	Summary  string // one sentence; {{ $labels.x }} and {{ $value }} as in Prometheus
}

// Unit is one of Grafana's units.
type Unit string

// The units that panels use.
const (
	Count     Unit = "short"
	PerSecond Unit = "cps"
	Seconds   Unit = "s"
	Bytes     Unit = "bytes"
	Share     Unit = "percentunit" // 0 to 1
)

// Query is one query of a panel.
type Query struct {
	// Expr is PromQL. {*} stands for the job and instance that the dashboard's variables select,
	// {topic} for these and the request topic; {*,x="y"} and {topic,x="y"} add a matcher.
	Expr   string
	Legend string // {{label}} as in Grafana
}

// Kind is the type of a panel.
type Kind string

// The kinds of panels.
const (
	Graph  Kind = "timeseries"
	Number Kind = "stat"
	Table  Kind = "table"
)

// Panel is one panel of a dashboard.
type Panel struct {
	Title   string
	Help    string // how to read the panel, a sentence
	Kind    Kind
	Unit    Unit
	Queries []Query
}

// Row is a headed group of panels.
type Row struct {
	Title  string
	Panels []Panel
}

// Dashboard is one Grafana dashboard.
type Dashboard struct {
	Name  string // of its file, and the end of its UID
	Title string
	Topic bool // its panels query the request topic
	Rows  []Row
}
