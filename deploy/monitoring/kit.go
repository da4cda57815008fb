// Package monitoring makes the dashboards that waterclock is delivered with.
//
//	go generate ./deploy/monitoring // writes deploy/grafana/*.json
//
// dashboards.yaml is the list of their panels; the alerts are written by hand, in deploy/prometheus/rules.yaml. The
// tests compare both with docs/RUNBOOK.md, which has a section for each alert, with the metrics in docs/METRICS.md, and
// with the labels in the code. The module in deploy/check evaluates the rules with Prometheus' own packages. The
// package itself is only text and does not depend on the service.
package monitoring

//go:generate go run ./gen

import (
	_ "embed"
	"fmt"

	"github.com/goccy/go-yaml"
)

//go:embed dashboards.yaml
var list []byte

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
	Graph  Kind = "timeseries" // if none is given
	Number Kind = "stat"
	Table  Kind = "table"
)

// Panel is one panel of a dashboard.
type Panel struct {
	Title   string
	Help    string // how to read the panel, a sentence
	Kind    Kind
	Unit    string // one of Grafana's
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

// Dashboards returns all dashboards.
func Dashboards() (all []Dashboard, err error) {
	if err := yaml.UnmarshalWithOptions(list, &all, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("read dashboards.yaml: %w", err)
	}
	return all, nil
}
