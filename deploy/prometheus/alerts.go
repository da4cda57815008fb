// Package alerts reads the alerts that waterclock is delivered with, in rules.yaml beside it.
//
//	for _, a := range alerts.All() {
//		fmt.Println(a.Name, a.Labels.Severity, a.Expr)
//	}
//
// Only tests need it. It panics if the file cannot be read: a mistake in the file, which every test then shows.
package alerts

import (
	_ "embed"

	"github.com/goccy/go-yaml"
)

//go:embed rules.yaml
var rules []byte

// Alert is one alerting rule.
type Alert struct {
	Name        string `yaml:"alert"` // also the heading of its section in docs/RUNBOOK.md
	Expr        string // PromQL; the alert fires for each series of the result
	For         string // how long the result must last; empty: the alert fires immediately
	Labels      struct{ Severity string }
	Annotations struct {
		Summary string // one sentence; {{ $labels.x }} and {{ $value }} as in Prometheus
		Runbook string `yaml:"runbook_url"`
	}
}

// All returns all alerts, the most general ones first.
func All() []Alert {
	var file struct {
		Groups []struct {
			Name  string
			Rules []Alert
		}
	}
	if err := yaml.UnmarshalWithOptions(rules, &file, yaml.Strict()); err != nil || len(file.Groups) != 1 {
		panic("rules.yaml has not one group of alerts: " + yaml.FormatError(err, false, true))
	}
	return file.Groups[0].Rules
}
