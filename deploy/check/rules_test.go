package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const (
	ruleFile = "../prometheus/rules.yaml"
	// Prometheus scrapes, and evaluates rules, this often.
	interval = 15 * time.Second
	// An incident's series last for so long. No alert waits for longer than its half.
	length = 40 * time.Minute
	// Incidents begin so long after the first scrape.
	onset = 5 * time.Minute
)

func newParser() parser.Parser { return parser.NewParser(parser.Options{}) }

// What "promtool check rules" checks: names, expressions, templates, unknown fields, and that no
// rule is there twice.
func TestRuleFile(t *testing.T) {
	groups, errs := rulefmt.ParseFile(ruleFile, false, model.UTF8Validation, newParser(), promslog.NewNopLogger())
	for _, err := range errs {
		t.Error(err)
	}
	if t.Failed() {
		return
	}
	seen := map[string]bool{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if key := fmt.Sprint(r.Alert, r.Record, r.Labels); seen[key] {
				t.Errorf("%s is there twice", key)
			} else {
				seen[key] = true
			}
		}
	}
	if len(seen) < 25 {
		t.Errorf("%d rules only", len(seen))
	}
}

// Each query of a dashboard is PromQL, once Grafana has put in its variables.
func TestDashboardQueries(t *testing.T) {
	files, err := filepath.Glob("../grafana/*.json")
	if err != nil || len(files) != 5 {
		t.Fatalf("%d dashboards, want 5: %v", len(files), err)
	}
	grafana := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*", "$topic", ".*")
	p := newParser()
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(data, &d); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		n := 0
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				n++
				if _, err := p.ParseExpr(grafana.Replace(target.Expr)); err != nil {
					t.Errorf("%s: %s: %v", name, panel.Title, err)
				}
			}
		}
		if n == 0 {
			t.Errorf("%s has no queries", name)
		}
	}
}

// scalingQueries returns what the chart scales on.
func scalingQueries(t *testing.T) (queries []string) {
	t.Helper()
	manifests, err := os.ReadFile("chart/testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range regexp.MustCompile(`(?m)^ +query: (.*)$`).FindAllSubmatch(manifests, -1) {
		queries = append(queries, string(q[1]))
	}
	if len(queries) != 3 {
		t.Fatalf("%d queries, want 3", len(queries))
	}
	return queries
}

// What the chart scales on is PromQL over metrics that are documented: KEDA takes a query that finds
// nothing for a failure, and stops scaling.
func TestScalingQueries(t *testing.T) {
	documented, err := os.ReadFile("../../docs/METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range scalingQueries(t) {
		expr, err := newParser().ParseExpr(q)
		if err != nil {
			t.Errorf("%s: %v", q, err)
			continue
		}
		for _, selectors := range parser.ExtractSelectors(expr) {
			name := ""
			for _, m := range selectors {
				if m.Name == model.MetricNameLabel {
					name = m.Value
				}
			}
			if !bytes.Contains(documented, []byte("`"+name)) && name != "process_cpu_seconds_total" {
				t.Errorf("docs/METRICS.md has no %s", name)
			}
		}
	}
}

// A partition moves, and its new owner is scraped before its former owner: its timers count once. If they counted
// twice, an instance would be started for them, and would move more partitions.
func TestScalingCountsMovedPartitionsOnce(t *testing.T) {
	manifests, err := os.ReadFile("chart/testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`query: (.*waterclock_due_within\{job="([^"]*)".*)`).FindSubmatch(manifests)
	if found == nil {
		t.Fatal("nothing asks for the load to come")
	}
	query, job := string(found[1]), found[2]
	for _, x := range []struct{ name, before, after string }{ // values of the former owner, and of the next one
		{"it is handed over", "30x20 0x40", "30x19 60x41"},
		{"its owner dies", "30x20 stale", "30x19 60x41"},
		{"a new pod takes it", "60x20 30x40", "_x19 30x41"},
	} {
		load := fmt.Sprintf("load %s\n", model.Duration(interval))
		for instance, values := range map[string]string{"a": x.before, "b": x.after} {
			load += fmt.Sprintf("  waterclock_due_within{job=%q,instance=%q,topic=\"timers\",window=\"10m\"} %s\n", job,
				instance, values)
		}
		suite, err := promqltest.NewLazyLoader(
			load, promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true, Parser: newParser()})
		if err != nil {
			t.Fatal(err)
		}
		ask, last := rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()), 0.0
		for at := time.Duration(0); at <= 59*interval; at += interval {
			now := time.Unix(0, 0).UTC().Add(at)
			suite.WithSamplesTill(now, func(err error) {
				if err != nil {
					t.Fatal(err)
				}
				v, err := ask(suite.Context(), query, now)
				if err != nil || len(v) != 1 {
					t.Fatalf("%s at %s: %v, %v", query, at, v, err)
				}
				if last = v[0].F; last > 60 {
					t.Errorf("%s: of 60 timers %v are counted at %s", x.name, last, at)
				}
			})
		}
		if last != 60 {
			t.Errorf("%s: %v timers are counted in the end", x.name, last)
		}
		suite.Close()
	}
}

// Its lag counts once too: with its former owner until that one's series ends, and then with its new one.
func TestScalingCountsTheirLagOnce(t *testing.T) {
	query := scalingQueries(t)[1]
	job, _, _ := strings.Cut(query[strings.Index(query, "job="):], ",")
	series := `waterclock_intake_lag_records{` + job + `,topic="timers",partition="0",instance=`
	promqltest.RunTest(t, fmt.Sprintf(`
load 15s
  %[1]s"old"} 80x8 stale
  %[1]s"new"} _x9 80x3 0x20

eval instant at 3m %[2]s
  {} 80

eval instant at 4m %[2]s
  {} 40
`, series, query), promqltest.NewTestEngine(t, false, 5*time.Minute, promqltest.DefaultMaxSamplesPerQuery))
}

// firing evaluates the rules over series as Prometheus would. It returns for each alert that fired
// when it did so first, and with which labels.
func firing(t *testing.T, series map[string]string) (first map[string]time.Duration, shown map[string]labels.Labels) {
	t.Helper()
	var load strings.Builder
	fmt.Fprintf(&load, "load %s\n", model.Duration(interval))
	for _, name := range slices.Sorted(maps.Keys(series)) {
		fmt.Fprintf(&load, "  %s %s\n", name, series[name])
	}
	suite, err := promqltest.NewLazyLoader(load.String(),
		promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true, Parser: newParser()})
	if err != nil {
		t.Fatalf("%v\n%s", err, load.String())
	}
	defer suite.Close()
	m := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:    rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()),
		AppendableV2: suite.Storage(),
		Context:      context.Background(),
		NotifyFunc:   func(context.Context, string, ...*rules.Alert) {},
		Logger:       promslog.NewNopLogger(),
		Parser:       newParser(),
	})
	groups, errs := m.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, ruleFile)
	if errs != nil {
		t.Fatal(errs)
	}
	alerting := make(map[*rules.Group][]*rules.AlertingRule)
	for _, g := range groups {
		for _, r := range g.Rules() {
			rule := r.(*rules.AlertingRule)
			rule.SetRestored(true)
			alerting[g] = append(alerting[g], rule)
		}
	}
	first, shown = map[string]time.Duration{}, map[string]labels.Labels{}
	for at := time.Duration(0); at <= length; at += interval {
		now := time.Unix(0, 0).UTC().Add(at)
		suite.WithSamplesTill(now, func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			for g, list := range alerting {
				g.Eval(suite.Context(), now)
				for _, rule := range list {
					note(t, rule, at, first, shown)
				}
			}
		})
	}
	return first, shown
}

// note adds a rule that fires to first and shown, and fails the test if it could not be evaluated
// or its summary could not be written.
func note(t *testing.T, rule *rules.AlertingRule, at time.Duration, first map[string]time.Duration,
	shown map[string]labels.Labels) {
	t.Helper()
	if err := rule.LastError(); err != nil {
		t.Fatalf("%s at %s: %v", rule.Name(), at, err)
	}
	for _, a := range rule.ActiveAlerts() {
		if a.State != rules.StateFiring {
			continue
		}
		if _, ok := first[rule.Name()]; !ok {
			first[rule.Name()], shown[rule.Name()] = at, a.Labels
		}
		if s := a.Annotations.Get("summary"); s == "" || strings.Contains(s, "<no value>") ||
			strings.Contains(s, "<error") {
			t.Errorf("%s: its summary is %q", rule.Name(), s)
		}
	}
}
