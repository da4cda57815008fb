package monitoring

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	alerts "github.com/waterclock/waterclock/deploy/prometheus"
)

const root = "../.."

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func dashboards(t *testing.T) []Dashboard {
	t.Helper()
	all, err := Dashboards()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The files in deploy/grafana are what the list makes, and there are no others.
func TestFilesAreUpToDate(t *testing.T) {
	made := map[string]bool{}
	for _, d := range dashboards(t) {
		name := "deploy/grafana/" + d.Name + ".json"
		made[name] = true
		want, err := d.JSON()
		if err != nil || read(t, name) != string(want) {
			t.Errorf("%s is not what the list makes: run go generate ./deploy/monitoring: %v", name, err)
		}
	}
	found, err := filepath.Glob(filepath.Join(root, "deploy/grafana/*.json"))
	if err != nil || len(found) == 0 {
		t.Fatalf("%v, %v", found, err)
	}
	for _, path := range found {
		if name, _ := filepath.Rel(root, path); !made[filepath.ToSlash(name)] {
			t.Errorf("%s comes from nowhere", name)
		}
	}
}

var (
	increases = regexp.MustCompile(`increase\(.*\[10m\]\)`)
	grows     = regexp.MustCompile(`increase\((\S+)\[10m\]\) > 0 or \(\((\S+) > 0 unless (\S+) offset 10m\) and on ` +
		`\(job, instance\) time\(\) - process_start_time_seconds < 600\)`)
)

// Alerts ask in one form whether a counter has grown. The file of alerts says why.
func TestAlertsOfCounters(t *testing.T) {
	n := 0
	for _, a := range alerts.All() {
		if !increases.MatchString(a.Expr) {
			continue
		}
		n++
		if m := grows.FindStringSubmatch(a.Expr); m == nil || m[1] != m[2] || m[1] != m[3] {
			t.Errorf("%s asks in another form whether its counter has grown: %s", a.Name, a.Expr)
		}
	}
	if n < 11 {
		t.Errorf("%d alerts of counters", n)
	}
}

// Each alert has a section in the runbook that begins with its severity and says what to do, and
// each section has an alert.
func TestAlertsAndRunbook(t *testing.T) {
	sections := map[string]string{}
	_, text, _ := strings.Cut(read(t, "docs/RUNBOOK.md"), "\n## Alerts")
	for part := range strings.SplitSeq(text, "\n### ") {
		if name, body, ok := strings.Cut(part, "\n"); ok && strings.HasPrefix(name, "Waterclock") {
			sections[name], _, _ = strings.Cut(body, "\n## ")
		}
	}
	names := map[string]bool{}
	for _, a := range alerts.All() {
		if names[a.Name] {
			t.Errorf("%s is there twice", a.Name)
		}
		names[a.Name] = true
		severity := strings.ToUpper(a.Labels.Severity[:1]) + a.Labels.Severity[1:] + ". "
		switch body, ok := sections[a.Name]; {
		case !ok:
			t.Errorf("docs/RUNBOOK.md has no section %s", a.Name)
		case !strings.HasPrefix(strings.TrimSpace(body), severity):
			t.Errorf("%s: its section should begin with %q", a.Name, severity)
		case !strings.Contains(body, "**Do:**"):
			t.Errorf("%s: its section does not say what to do", a.Name)
		}
		if said := a.Annotations.Summary; said == "" || !strings.HasSuffix(said, ".") {
			t.Errorf("%s: %q is no sentence", a.Name, said)
		}
		if want := "docs/RUNBOOK.md#" + strings.ToLower(a.Name); a.Annotations.Runbook != want {
			t.Errorf("%s leads to %s, want %s", a.Name, a.Annotations.Runbook, want)
		}
	}
	for name := range sections {
		if !names[name] {
			t.Errorf("docs/RUNBOOK.md has a section %s, which no alert has", name)
		}
	}
}

// Links of the runbook lead to headings that are there.
func TestRunbookLinks(t *testing.T) {
	anchor := func(heading string) string {
		return strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, heading)
	}
	links := regexp.MustCompile(`\]\(([^)#\s]*)#([^)\s]+)\)`).FindAllStringSubmatch(read(t, "docs/RUNBOOK.md"), -1)
	if len(links) < 10 {
		t.Fatalf("found %d links only", len(links))
	}
	for _, l := range links {
		name := filepath.Join("docs", l[1])
		if l[1] == "" {
			name = "docs/RUNBOOK.md"
		}
		found := false
		for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(read(t, name), -1) {
			found = found || anchor(h[1]) == l[2]
		}
		if !found {
			t.Errorf("%s has no heading #%s", name, l[2])
		}
	}
}

var (
	documented = regexp.MustCompile("`(waterclock_[a-z0-9_]+)(?:\\{([a-z_,]*)\\})?`")
	named      = regexp.MustCompile(`\b(waterclock_[a-z0-9_]+)(\{[^}]*\})?`)
	matcher    = regexp.MustCompile(`([a-z_]+) *(?:=~|!~|!=|=)`)
	grouping   = regexp.MustCompile(`\b(?:by|on|without|ignoring) *\(([^)]*)\)`)
	labelOf    = regexp.MustCompile(`\$labels\.([a-z_]+)|\{\{ *([a-z_]+) *\}\}`)
)

// metrics returns the metrics that docs/METRICS.md lists, with their labels.
func metrics(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for row := range strings.Lines(read(t, "docs/METRICS.md")) {
		cells := strings.Split(row, " | ")
		if !strings.HasPrefix(row, "| `") || len(cells) < 2 {
			continue
		}
		for _, m := range documented.FindAllStringSubmatch(cells[0], -1) {
			found[m[1]] = strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' })
		}
	}
	if len(found) < 60 {
		t.Fatalf("found %d metrics only", len(found))
	}
	return found
}

// registered returns the metrics that the code makes with a name in one piece, with their labels.
func registered(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, dir := range []string{"intake", "statestore", "delaytopics", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && len(call.Args) > 0 {
					if name := metricName(call); name != "" {
						found[name] = append(words(call.Args[1:]), constLabels(call.Args[0])...)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(found) < 40 {
		t.Fatalf("found %d metrics only", len(found))
	}
	return found
}

// makers are the functions that take the name of a metric first: those of package metric, and two more.
var makers = []string{"NewDesc", "newLateness", "Counter", "Counters", "Gauge", "Gauges", "Histogram", "Histograms",
	"GaugeFunc"}

// metricName is the name of the metric that a call makes: NewDesc("waterclock_…", …) or New…(…Opts{Name:
// "waterclock_…"}, …).
func metricName(call *ast.CallExpr) string {
	var lit ast.Expr
	switch first := call.Args[0].(type) {
	case *ast.BasicLit:
		name := ""
		switch f := call.Fun.(type) {
		case *ast.Ident:
			name = f.Name
		case *ast.SelectorExpr:
			name = f.Sel.Name
		}
		if slices.Contains(makers, name) {
			lit = first
		}
	case *ast.CompositeLit:
		for _, e := range first.Elts {
			if kv, ok := e.(*ast.KeyValueExpr); ok {
				if key, ok := kv.Key.(*ast.Ident); ok && key.Name == "Name" {
					lit = kv.Value
				}
			}
		}
	}
	if l, ok := lit.(*ast.BasicLit); ok {
		if name, err := strconv.Unquote(l.Value); err == nil && strings.HasPrefix(name, "waterclock_") &&
			!strings.HasSuffix(name, "_") {
			return name
		}
	}
	return ""
}

// constLabels are the labels whose value a metric's options set.
func constLabels(opts ast.Expr) (list []string) {
	ast.Inspect(opts, func(n ast.Node) bool {
		if kv, ok := n.(*ast.KeyValueExpr); ok {
			list = append(list, words([]ast.Expr{kv.Key})...)
		}
		return true
	})
	return list
}

// words are the strings of one word in args: labels, but not the help, nor constant functions.
func words(args []ast.Expr) (list []string) {
	for _, a := range args {
		switch a.(type) {
		case *ast.FuncLit, *ast.BinaryExpr: // a help of several lines
			continue
		}
		ast.Inspect(a, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if s, err := strconv.Unquote(l.Value); err == nil && !strings.Contains(s, " ") {
					list = append(list, s)
				}
			}
			return true
		})
	}
	return list
}

// docs/METRICS.md gives each metric the labels that the code gives it.
func TestDocumentedLabels(t *testing.T) {
	docs := metrics(t)
	for name, labels := range registered(t) {
		got, ok := docs[name]
		if !ok {
			t.Errorf("%s is not in docs/METRICS.md", name)
		} else if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(labels))) {
			t.Errorf("%s has the labels %q, docs/METRICS.md says %q", name, labels, got)
		}
	}
}

// queries calls see with each query, and the text that shows its result.
func queries(t *testing.T, see func(where, expr, text string)) {
	for _, a := range alerts.All() {
		see(a.Name, a.Expr, a.Annotations.Summary)
	}
	for _, d := range dashboards(t) {
		for _, r := range d.Rows {
			for _, p := range r.Panels {
				for _, q := range p.Queries {
					see(d.Name+": "+p.Title, q.PromQL(), q.Legend)
				}
			}
		}
	}
}

// Each query names metrics and labels that are documented, and what is written about its result
// names labels that it has.
func TestQueriesNameWhatIsThere(t *testing.T) {
	docs := metrics(t)
	queries(t, func(where, expr, text string) {
		ofTarget := []string{"job", "instance"}
		allowed := slices.Clone(ofTarget)
		for _, m := range named.FindAllStringSubmatch(expr, -1) {
			labels, ok := docs[m[1]]
			if base, cut := strings.CutSuffix(m[1], "_bucket"); !ok && cut {
				labels, ok = docs[base]
				allowed = append(allowed, "le")
			}
			if !ok {
				t.Errorf("%s asks for %s, which docs/METRICS.md does not have", where, m[1])
			}
			allowed = append(allowed, labels...)
			for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(labels, l[1]) && !slices.Contains(ofTarget, l[1]) {
					t.Errorf("%s: %s has no label %s", where, m[1], l[1])
				}
			}
		}
		has := allowed
		for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
			by := strings.FieldsFunc(g[1], func(r rune) bool { return r == ',' || r == ' ' })
			for _, l := range by {
				if !slices.Contains(allowed, l) {
					t.Errorf("%s groups by %s, which no metric in it has", where, l)
				}
			}
			if !strings.HasPrefix(g[0], "on") {
				has = by
			}
		}
		for _, l := range labelOf.FindAllStringSubmatch(text, -1) {
			if name := l[1] + l[2]; !slices.Contains(has, name) {
				t.Errorf("%s: %q names the label %s, the result has %q", where, text, name, has)
			}
		}
	})
}

// recordings are what was scraped of real incidents, for the alerts to judge.
const recordings = "deploy/check/testdata"

// Each series of a recorded incident is still there, with its labels, and an alert asks for it. Otherwise the incident
// must be recorded again: after a metric has got another name, an old recording would raise no alert.
func TestRecordingsNameWhatIsThere(t *testing.T) {
	docs, asked := metrics(t), map[string]bool{}
	for _, a := range alerts.All() {
		for _, m := range named.FindAllStringSubmatch(a.Expr, -1) {
			asked[m[1]] = true
		}
	}
	files, err := filepath.Glob(filepath.Join(root, recordings, "*.txt"))
	if err != nil || len(files) < 12 {
		t.Fatalf("%d recordings: %v", len(files), err)
	}
	for _, path := range files {
		text := read(t, filepath.Join(recordings, filepath.Base(path)))
		for line := range strings.Lines(text) {
			what, _, _ := strings.Cut(line, " ")
			name, labels, _ := strings.Cut(what, "{")
			if name == "up" {
				continue
			}
			want, ok := docs[name]
			if base, cut := strings.CutSuffix(name, "_bucket"); !ok && cut {
				want, ok = docs[base]
				want = append(slices.Clone(want), "le")
			}
			var has []string
			for _, l := range matcher.FindAllStringSubmatch(labels, -1) {
				has = append(has, l[1])
			}
			slices.Sort(has)
			if !ok || !asked[name] || !slices.Equal(has, slices.Sorted(slices.Values(want))) {
				t.Errorf("%s: %s: documented %t, with the labels %q, asked for by an alert %t", filepath.Base(path),
					what, ok, want, asked[name])
			}
		}
	}
}

// Each metric that is documented is on a dashboard, or there is a reason why not.
func TestMetricsAreOnDashboards(t *testing.T) {
	docs, drawn := metrics(t), map[string]bool{}
	undrawn := map[string]string{ // and why
		"waterclock_lateness_seconds": "waterclock_commit_lateness_seconds is what consumers see; the difference is " +
			"the duration of transactions, which is shown",
	}
	queries(t, func(where, expr, _ string) {
		if strings.Contains(where, ": ") {
			for _, m := range named.FindAllStringSubmatch(expr, -1) {
				drawn[strings.TrimSuffix(m[1], "_bucket")] = true
			}
		}
	})
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		if drawn[name] == (undrawn[name] != "") {
			t.Errorf("%s: on a dashboard %v, among the exceptions %v", name, drawn[name], undrawn[name] != "")
		}
	}
	for name := range undrawn {
		if docs[name] == nil && !slices.Contains(slices.Collect(maps.Keys(docs)), name) {
			t.Errorf("%s is an exception, and is not there", name)
		}
	}
}

// The panels of a dashboard do not lie on each other, and have titles of their own.
func TestPanelsHaveAPlace(t *testing.T) {
	for _, d := range dashboards(t) {
		taken := map[[2]int]string{}
		for _, p := range d.panels() {
			at, title := p["gridPos"].(object), p["title"].(string)
			if title == "" {
				t.Errorf("%s has a panel without a title", d.Name)
			}
			for x := at["x"].(int); x < at["x"].(int)+at["w"].(int); x++ {
				for y := at["y"].(int); y < at["y"].(int)+at["h"].(int); y++ {
					if other, ok := taken[[2]int{x, y}]; ok || x >= gridWidth {
						t.Fatalf("%s: %s lies on %q at %d, %d", d.Name, title, other, x, y)
					}
					taken[[2]int{x, y}] = title
				}
			}
		}
	}
}
