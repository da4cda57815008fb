package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// misspelt returns what a dashboard has that Grafana's own types do not: fields, kinds of panels, and values. Grafana
// ignores such things. It fills in the fields that are missing.
func misspelt(model []byte) (wrong []string) {
	add := func(err error) {
		var all cog.BuildErrors
		if err != nil && !errors.As(err, &all) {
			wrong = append(wrong, err.Error())
		}
		for _, e := range all {
			if e.Message != "required field is missing from input" {
				wrong = append(wrong, e.Error())
			}
		}
	}
	var d dashboard.Dashboard
	add(d.UnmarshalJSONStrict(model))
	add(d.Validate())
	var raw struct {
		Panels []struct {
			Title, Type string
			FieldConfig json.RawMessage
		}
	}
	add(json.Unmarshal(model, &raw))
	for _, p := range raw.Panels {
		if p.Type == "row" {
			continue
		}
		if _, known := cog.ConfigForPanelcfgVariant(p.Type); !known {
			wrong = append(wrong, p.Title+": no panel is called "+p.Type)
		}
		var of dashboard.FieldConfigSource // which the panel's decoder does not look at strictly
		add(of.UnmarshalJSONStrict(p.FieldConfig))
	}
	for _, p := range d.Panels {
		if p.Panel == nil {
			continue
		}
		for _, q := range p.Panel.Targets {
			if q.DataqueryType() != "prometheus" {
				wrong = append(wrong, *p.Panel.Title+": a query is for "+q.DataqueryType())
			}
		}
	}
	return wrong
}

// Each dashboard decodes strictly into the types that Grafana publishes for Go.
func TestDashboardsHaveGrafanasTypes(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	files, err := filepath.Glob("../grafana/*.json")
	if err != nil || len(files) != 5 {
		t.Fatalf("%d dashboards, want 5: %v", len(files), err)
	}
	for _, name := range files {
		model, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := misspelt(model); wrong != nil {
			t.Errorf("%s:\n%s", name, strings.Join(wrong, "\n"))
		}
		if !strings.Contains(name, "overview") { // it has all kinds of panels
			continue
		}
		for _, x := range []struct{ is, not string }{
			{`"graphTooltip"`, `"graphTooltips"`}, {`"gridPos"`, `"gridPosition"`}, {`"expr"`, `"exp"`},
			{`"legendFormat"`, `"legend"`},
			{`"showLegend"`, `"showLegends"`}, {`"colorMode"`, `"colourMode"`}, {`"unit"`, `"units"`},
			{`"timeseries"`, `"timeserie"`},
			{`"includeAll"`, `"all"`}, {`"refresh": 2`, `"refresh": "always"`},
			{`"type": "prometheus"`, `"type": "loki"`},
		} {
			if planted := bytes.ReplaceAll(model, []byte(x.is), []byte(x.not)); misspelt(planted) == nil {
				t.Errorf("%s: it may have %s instead of %s", name, x.not, x.is)
			}
		}
	}
}
