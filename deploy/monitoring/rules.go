package monitoring

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/common/model"
)

// Runbook is the document that the alerts link to. It has no public address: if you publish a copy, replace this by its
// address, as the chart does (rules.runbook).
const Runbook = "docs/RUNBOOK.md"

const generated = "# Made by \"go generate ./deploy/monitoring\" from deploy/monitoring/alerts.go. Do not edit.\n"

// Anchor is the fragment of the alert's section in the runbook.
func (a Alert) Anchor() string { return strings.ToLower(a.Name) }

// Rules returns the alerts as a rule file of Prometheus.
func Rules() ([]byte, error) {
	var rules []yaml.MapSlice
	for _, a := range Alerts() {
		rule := yaml.MapSlice{{Key: "alert", Value: a.Name}, {Key: "expr", Value: a.Expr}}
		if a.For > 0 {
			rule = append(rule, yaml.MapItem{Key: "for", Value: model.Duration(a.For).String()})
		}
		rules = append(rules, append(rule,
			yaml.MapItem{Key: "labels", Value: yaml.MapSlice{{Key: "severity", Value: string(a.Severity)}}},
			yaml.MapItem{Key: "annotations", Value: yaml.MapSlice{
				{Key: "summary", Value: a.Summary},
				{Key: "runbook_url", Value: Runbook + "#" + a.Anchor()},
			}}))
	}
	groups := yaml.MapSlice{{Key: "groups",
		Value: []yaml.MapSlice{{{Key: "name", Value: "waterclock"}, {Key: "rules", Value: rules}}}}}
	var b bytes.Buffer
	b.WriteString(generated)
	if err := yaml.NewEncoder(&b, yaml.Indent(2), yaml.IndentSequence(true)).Encode(groups); err != nil {
		return nil, fmt.Errorf("encode rules: %w", err)
	}
	return b.Bytes(), nil
}
