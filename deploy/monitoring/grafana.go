package monitoring

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
)

// schemaVersion is that of Grafana's dashboards, gridWidth the width of its grid.
const (
	schemaVersion = 39
	gridWidth     = 24
	rowHeight     = 1
	numberWidth   = 4
	numberHeight  = 4
	panelWidth    = 12
	panelHeight   = 8
)

type object = map[string]any

// JSON returns the dashboard as Grafana's model, for provisioning or import. The data source is a variable, so the
// file names none.
func (d Dashboard) JSON() ([]byte, error) {
	model := object{
		"uid":           "waterclock-" + d.Name,
		"title":         "waterclock: " + d.Title,
		"description":   "Made by \"go generate ./deploy/monitoring\" from deploy/monitoring/dashboards.yaml.",
		"tags":          []string{"waterclock"},
		"schemaVersion": schemaVersion,
		"editable":      true,
		"graphTooltip":  1, // one crosshair for all panels
		"refresh":       "30s",
		"time":          object{"from": "now-1h", "to": "now"},
		"templating":    object{"list": d.variables()},
		"links": []object{{
			"type": "dashboards", "tags": []string{"waterclock"}, "title": "waterclock", "asDropdown": true,
			"keepTime": true, "includeVars": true,
		}},
		"panels": d.panels(),
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(model); err != nil {
		return nil, fmt.Errorf("encode dashboard %s: %w", d.Name, err)
	}
	return b.Bytes(), nil
}

func (d Dashboard) variables() []object {
	list := []object{
		{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
			"current": object{}},
		variable("job", "Job", "label_values(waterclock_build_info, job)"),
		variable("instance", "Instance", `label_values(waterclock_build_info{job=~"$job"}, instance)`),
	}
	if d.Topic {
		list = append(list,
			variable("topic", "Request topic", `label_values(waterclock_topic_partitions{job=~"$job"}, topic)`))
	}
	return list
}

// variable is a choice of label values. At first all of them are selected.
func variable(name, label, query string) object {
	return object{
		"name": name, "label": label, "type": "query", "datasource": datasource(),
		"definition": query, "query": object{"query": query, "refId": name},
		"refresh": 2, // when the time range changes
		"sort":    1, "multi": true, "includeAll": true,
		"current": object{"text": []string{"All"}, "value": []string{"$__all"}},
	}
}

func datasource() object { return object{"type": "prometheus", "uid": "${datasource}"} }

// panels lays the rows out: numbers side by side, other panels two in a line.
func (d Dashboard) panels() (list []object) {
	id, x, y, line := 0, 0, 0, 0
	place := func(width, height int) object {
		id++
		if x+width > gridWidth {
			x, y, line = 0, y+line, 0
		}
		at := object{"x": x, "y": y, "w": width, "h": height}
		x, line = x+width, max(line, height)
		return at
	}
	for _, row := range d.Rows {
		x = gridWidth // start a new line
		list = append(list, object{"type": "row", "title": row.Title, "collapsed": false, "panels": []object{},
			"gridPos": place(gridWidth, rowHeight), "id": id})
		for _, p := range row.Panels {
			width, height := panelWidth, panelHeight
			if p.Kind == Number {
				width, height = numberWidth, numberHeight
			}
			o := p.model()
			o["gridPos"] = place(width, height)
			o["id"] = id
			list = append(list, o)
		}
	}
	return list
}

func (p Panel) model() object {
	o := object{
		"type": string(cmp.Or(p.Kind, Graph)), "title": p.Title, "description": p.Help, "datasource": datasource(),
		"fieldConfig": object{"defaults": object{"unit": p.Unit}, "overrides": []object{}},
	}
	switch cmp.Or(p.Kind, Graph) {
	case Graph:
		o["options"] = object{"tooltip": object{"mode": "multi", "sort": "desc"},
			"legend": object{"displayMode": "list", "placement": "bottom", "showLegend": true}}
	case Number:
		o["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "value",
			"graphMode": "area"}
	case Table:
		o["transformations"] = []object{{"id": "labelsToFields", "options": object{"mode": "columns"}},
			{"id": "merge", "options": object{}}}
	}
	var targets []object
	for i, q := range p.Queries {
		t := object{"refId": string(rune('A' + i)), "expr": q.PromQL(), "legendFormat": q.Legend,
			"datasource": datasource()}
		if p.Kind == Table {
			t["instant"], t["format"] = true, "table"
		}
		targets = append(targets, t)
	}
	o["targets"] = targets
	return o
}

// PromQL returns the query in the form for Grafana, with the dashboard's variables in its selectors.
func (q Query) PromQL() string {
	const instance = `job=~"$job",instance=~"$instance"`
	return strings.NewReplacer("{*", "{"+instance, "{topic", "{"+instance+`,topic=~"$topic"`).Replace(q.Expr)
}
