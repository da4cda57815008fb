package docs

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// TestDocumentedReasons: the table of dead letters is the list of reasons, in its order and with its sentences.
func TestDocumentedReasons(t *testing.T) {
	var want strings.Builder
	for _, r := range waterclock.Reasons() {
		want.WriteString("| `" + string(r) + "` | " + r.Meaning() + " |\n")
	}
	text := strings.TrimSpace(find(t, reference, "Dead letters").text) + "\n"
	if !strings.HasSuffix(text, "| code | meaning |\n|---|---|\n"+want.String()) {
		t.Errorf("the table of codes should be\n%s", want.String())
	}
}

// TestDocumentedHeaders: the tables of the reference have a row for each header of a request, an emission and a dead
// letter, and for no other.
func TestDocumentedHeaders(t *testing.T) {
	want := []string{
		waterclock.HeaderAt, waterclock.HeaderAfter, waterclock.HeaderCancel, waterclock.HeaderTrigger,
		waterclock.HeaderPause, waterclock.HeaderResume, waterclock.HeaderMove, waterclock.HeaderIf,
		waterclock.HeaderTargetTopic,
		waterclock.HeaderTargetKey, waterclock.HeaderTargetKeyNull, waterclock.HeaderTargetPartition,
		waterclock.HeaderEvery, waterclock.HeaderCron, waterclock.HeaderZone, waterclock.HeaderUntil,
		waterclock.HeaderCount, waterclock.HeaderJitter, waterclock.HeaderNotOn, waterclock.HeaderShift,
		waterclock.HeaderCatchUp, waterclock.HeaderMaxLate,
		waterclock.HeaderRemember, waterclock.HeaderLabels, waterclock.HeaderLabelsHeader, waterclock.HeaderID,
		waterclock.HeaderDue, waterclock.HeaderOccurrence,
		waterclock.HeaderSource, waterclock.HeaderEvent, waterclock.HeaderTraceparent, waterclock.HeaderReason,
		waterclock.HeaderDetail, waterclock.HeaderTruncated,
	}
	var got []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*) \\|").FindAllStringSubmatch(read(t, reference), -1) {
		for _, m := range regexp.MustCompile("`((?:timer|waterclock)-[a-z-]+)`").FindAllStringSubmatch(row[1], -1) {
			got = append(got, m[1])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if got = slices.Compact(got); !slices.Equal(got, want) {
		t.Errorf("%s has rows for\n%s\nthe headers are\n%s", reference, strings.Join(got, " "), strings.Join(want, " "))
	}
}

var (
	wrapped    = regexp.MustCompile(`\n {20,}`) // a line of help that goes on
	helpFlag   = regexp.MustCompile(`(?m)^ +--([a-z-]+)(?: .*?\(default "?([^"]+?)"?\))?`)
	settingRow = regexp.MustCompile("(?m)^\\| (`[a-z-]+`(?:, `[a-z-]+`)*) \\|([^|]*)\\|")
)

// TestDocumentedSettings: the table of settings has the flags of serve, in the order of a file that has all of them,
// and with their defaults.
func TestDocumentedSettings(t *testing.T) {
	_, help := run(t, exec.Command(rig.Binary(t), "serve", "--help"))
	defaults := make(map[string]string)
	for _, m := range helpFlag.FindAllStringSubmatch(wrapped.ReplaceAllString(help, " "), -1) {
		defaults[m[1]] = m[2]
	}
	delete(defaults, "config")
	_, example := run(t, exec.Command(rig.Binary(t), "config", "example"))
	example, _, _ = strings.Cut(example, "\n#tenants:\n")
	var want, got []string
	for _, m := range regexp.MustCompile(`(?m)^#?([a-z-]+):`).FindAllStringSubmatch(example, -1) {
		value, shown := defaults[m[1]]
		if !shown {
			t.Errorf("serve --help does not show --%s", m[1])
		}
		want = append(want, m[1]+" "+value)
	}
	if len(want) != len(defaults) {
		t.Errorf("serve --help shows %d settings, the file has %d", len(defaults), len(want))
	}
	for _, m := range settingRow.FindAllStringSubmatch(find(t, configuration, "Settings of `serve`").text, -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			value := strings.Trim(strings.TrimSpace(m[2]), "`")
			if value == "false" || value == "0" || value == "the system's" {
				value = "" // which help does not show
			}
			got = append(got, strings.Trim(name, "`")+" "+value)
		}
	}
	if len(want) < 20 || !slices.Equal(got, want) {
		t.Errorf("%s has\n%s\nserve has\n%s", configuration, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDocumentedTenants: the table of a tenant's settings has those of the example, in their order, and each dialect
// has a section.
func TestDocumentedTenants(t *testing.T) {
	_, example := run(t, exec.Command(rig.Binary(t), "config", "example"))
	_, example, _ = strings.Cut(example, "\n#tenants:\n")
	var want, got []string
	for _, m := range regexp.MustCompile(`(?m)^#    ([a-z-]+):`).FindAllStringSubmatch(example, -1) {
		want = append(want, m[1])
	}
	for _, m := range settingRow.FindAllStringSubmatch(find(t, configuration, "Tenants").text, -1) {
		got = append(got, strings.Trim(m[1], "`"))
	}
	if len(want) < 10 || !slices.Equal(got, want) {
		t.Errorf("%s has\n%q\na tenant has\n%q", configuration, got, want)
	}
	text := read(t, migration)
	for _, d := range intake.Dialects() {
		if !regexp.MustCompile("(?m)^## .*`" + string(d) + "`").MatchString(text) {
			t.Errorf("%s has no section for %s", migration, d)
		}
	}
}

// TestDocumentedMetrics: what an instance that has done everything shows is in the text, and what the text names is
// shown.
func TestDocumentedMetrics(t *testing.T) {
	t.Parallel()
	s := rig.NewSetup(t, kafkatest.Shared(t), 1, 1)
	cfg := s.Config()
	cfg.API = "127.0.0.1:0"
	api := make(chan string, 1)
	in := rig.Serve(t, cfg, node.Options{StartedAPI: func(u string) { api <- u }})
	in.Ready(1, patience)
	resp, err := http.Get(<-api + "/v1/topics")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	s.Send(rig.Timer(s.Requests, s.Target, "m", time.Now()), rig.Timer(s.Requests, "__refused", "m", time.Now()))
	s.Out.WaitFor(1, patience)
	until(t, "the refusal is counted", func() bool { return in.Metric("waterclock_dead_letters_total") > 0 })

	text := read(t, metrics)
	for name := range strings.FieldsSeq(
		"waterclock_outcomes_total waterclock_lateness_seconds waterclock_dead_letters_total") {
		if in.Metric(name) == 0 {
			t.Errorf("%s is 0", name)
		}
	}
	var shown []string
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (waterclock_\S+) `).FindAllStringSubmatch(in.Metrics(), -1) {
		shown = append(shown, m[1])
	}
	for _, name := range shown {
		if !strings.Contains(text, "`"+name+"`") && !strings.Contains(text, "`"+name+"{") {
			t.Errorf("%s lacks the metric %s", metrics, name)
		}
	}
	sometimes := []string{ // with labels that this run gives no value
		"waterclock_parked_timers_by_target", "waterclock_intake_held_seconds", "waterclock_settings_differing",
		"waterclock_deferred_timers",
	}
	for _, m := range regexp.MustCompile("`(waterclock_[a-z0-9_]+)[{`]").FindAllStringSubmatch(text, -1) {
		if !slices.Contains(shown, m[1]) && !slices.Contains(sometimes, m[1]) {
			t.Errorf("%s names the metric %s, which is not there", metrics, m[1])
		}
	}
}

var (
	fenced  = regexp.MustCompile("(?s)```.*?```")
	linked  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	inLink  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// Each link of a document to a file or a heading of the repository leads there.
func TestDocumentsLinkToWhatIsThere(t *testing.T) {
	var pages []string
	for _, glob := range []string{"*.md", "docs/*.md", "docs/internals/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, glob))
		if err != nil || found == nil {
			t.Fatalf("%s: %d pages, %v", glob, len(found), err)
		}
		pages = append(pages, found...)
	}
	prose := func(page string) string { return fenced.ReplaceAllString(read(t, page), "") }
	links := 0
	for _, path := range pages {
		page, _ := filepath.Rel(root, path)
		for _, m := range linked.FindAllStringSubmatch(prose(page), -1) {
			if strings.HasPrefix(m[1], "https://") {
				continue
			}
			links++
			file, anchor, _ := strings.Cut(m[1], "#")
			to := page
			if file != "" {
				to = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(prose(to)), anchor) {
				t.Errorf("%s links to %s, and there is no such heading", page, m[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("found %d links only: the test looks in the wrong way", links)
	}
}

// anchors returns the names by which GitHub links to the headings of a document.
func anchors(text string) (all []string) {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		plain := strings.ToLower(inLink.ReplaceAllString(m[1], "$1"))
		all = append(all, strings.ReplaceAll(noSlug.ReplaceAllString(plain, ""), " ", "-"))
	}
	return all
}
