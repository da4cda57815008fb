package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/schollz/progressbar/v3"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/internal/audit"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/internal/node/policy"
	"github.com/waterclock/waterclock/internal/ownership/membership"
)

// AuditOptions are the options of Audit.
type AuditOptions struct {
	From, Until time.Time // bounds of the requests that are audited; zero: no bound
	Dir         string    // keeps the facts; "": a temporary directory is used
	JSON        bool
	Progress    io.Writer // a terminal for a progress bar; nil: there is none
}

// shownViolations is how many violations are printed as text. The JSON has all violations that the report lists.
const shownViolations = 50

// Audit reports the fate of each request in a time span, from the logs alone. It returns an error if the logs do not
// add up, or if it could not find out.
func Audit(ctx context.Context, cfg *config.Config, o AuditOptions, out io.Writer) error {
	job := audit.Options{From: o.From, Until: o.Until, Dir: o.Dir}
	var err error
	if job.Client, err = connect.CommandOptions(cfg); err != nil {
		return err
	}
	group := compareGroup(ctx, cfg)
	if job.Topics, err = auditedTopics(ctx, cfg, group.events); err != nil {
		return err
	}
	finish := func() {}
	if o.Progress != nil {
		job.Progress, finish = progressTo(o.Progress)
	}
	report, err := audit.Run(ctx, job)
	finish()
	settings := append(otherSettings(report), group.notes...)
	switch {
	case ctx.Err() != nil && o.Dir != "":
		return errors.New("interrupted: run the same command to continue")
	case ctx.Err() != nil:
		return errors.New("interrupted: the facts are gone; with --dir the same command could continue")
	case err != nil:
		return err
	}
	if o.JSON {
		err = printAuditJSON(out, report, settings)
	} else {
		err = printAudit(out, report, settings)
	}
	return errors.Join(err, verdict(report, settings))
}

// otherSettings reports the requests that were judged by other settings than those of the audit.
func otherSettings(r *audit.Report) (notes []string) {
	if r == nil {
		return nil
	}
	for i := range r.Topics {
		if t := &r.Topics[i]; t.OtherSettings > 0 {
			notes = append(notes, fmt.Sprintf(
				"%s: %d requests were accepted or rejected against the settings given here, "+
					"such as %s: instances had other settings then, or another version",
				t.Topic, t.OtherSettings, t.FirstOther))
		}
	}
	return notes
}

// groupSettings says how the settings of the group's members differ now.
type groupSettings struct {
	notes  []string // settings that differ between members, or from those of the audit
	events bool     // no member is known to have other events than the audit's settings
}

// compareGroup compares the settings of the group's members with each other and with those of the audit.
func compareGroup(ctx context.Context, cfg *config.Config) groupSettings {
	look := groupSettings{events: true}
	ctx, cancel := context.WithTimeout(ctx, connect.CommandTimeout)
	defer cancel()
	cl, err := connect.Open(ctx, cfg)
	if err != nil {
		return look // the audit will say why
	}
	defer cl.Close()
	groups, err := kadm.NewClient(cl).DescribeGroups(ctx, cfg.Group)
	g := groups[cfg.Group]
	if err = cmp.Or(err, g.Err); err != nil {
		look.notes = []string{fmt.Sprintf("cannot read those of the instances of group %s: %v",
			cfg.Group, err)}
		return look
	}
	look.compare(cfg, membership.Members(&g))
	return look
}

func (g *groupSettings) compare(cfg *config.Config, members []membership.Member) {
	digests, names := make(map[string]config.Digest), make(map[string]string)
	var here []string // settings in which a member differs from the audit
	for _, m := range members {
		digests[m.Process], names[m.Process] = m.Settings, strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) { // it may come from a stranger
				return '?'
			}
			return r
		}, m.Name+"/"+m.Process)
		for _, setting := range cfg.Digest().Differs(m.Settings) {
			ofTopics := setting == "requests" || setting == "delay" // an audit may be of some of the topics
			if !ofTopics && !slices.Contains(here, setting) {
				here = append(here, setting)
			}
		}
	}
	for process, odd := range config.Odd(digests) {
		if len(odd) > 0 {
			g.notes = append(g.notes, fmt.Sprintf("instance %s of group %s differs from others in %s",
				names[process], cfg.Group, strings.Join(odd, ", ")))
		}
	}
	slices.Sort(g.notes)
	if len(here) > 0 {
		g.notes = append(g.notes, fmt.Sprintf(
			"instances of group %s have others than were given here: %s; give the audit their file",
			cfg.Group, strings.Join(here, ", ")))
	}
	g.events = !slices.Contains(here, "events")
	written := slices.ContainsFunc(cfg.Requests, func(topic string) bool { return cfg.PolicyOf(topic).Events })
	if written && !g.events {
		g.notes = append(g.notes, "events prove nothing, because not all instances write them: the audit does without")
	}
}

// auditedTopics looks up the request topics and the topics that belong to them. Without events those of the settings
// are left out.
func auditedTopics(ctx context.Context, cfg *config.Config, events bool) ([]audit.Topic, error) {
	ctx, cancel := context.WithTimeout(ctx, connect.CommandTimeout)
	defer cancel()
	cl, err := connect.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if err := checkTopicRights(ctx, cfg, cl, false); err != nil {
		return nil, err
	}
	var audited []audit.Topic
	for _, name := range cfg.Requests {
		in, err := topics.Inspect(ctx, kadm.NewClient(cl), name, policy.TopicOptions(cfg, name, 0, false))
		if err != nil {
			return nil, err
		}
		set := in.Set
		if set.Request.Partitions == 0 {
			return nil, fmt.Errorf("topic %s does not exist: give the same --requests as to serve", name)
		}
		if set.Changelog.Partitions != set.Request.Partitions {
			return nil, fmt.Errorf("%s has %d partitions and %s has %d: see waterclock topics", name,
				set.Request.Partitions, set.Changelog.Name, set.Changelog.Partitions)
		}
		t := audit.Topic{
			Name: name, ID: set.Request.ID, Changelog: set.Changelog.Name, Letters: set.DeadLetters.Name,
			Partitions: set.Request.Partitions, Keeps: set.Settings().Keeps(),
			Rules: policy.Rules(cfg, set), Lenient: policy.Lenient(cfg, set),
		}
		if p := cfg.PolicyOf(name); events && p.Events && p.EventsCleanup != config.CleanupCompact {
			t.Events = set.Events.Name
		}
		audited = append(audited, t)
	}
	return audited, nil
}

// progressTo draws a bar for each stage, until finish is called.
func progressTo(w io.Writer) (show func(stage string, done, total int64), finish func()) {
	var bar *progressbar.ProgressBar
	var of string
	var mu sync.Mutex // workers call show
	finish = func() {
		if bar != nil {
			_ = bar.Finish() // it only draws
		}
	}
	return func(stage string, done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		if stage != of {
			finish()
			if total == 0 {
				total = -1 // not known
			}
			of = stage
			bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(w),
				progressbar.OptionSetDescription(stage), progressbar.OptionShowCount(),
				progressbar.OptionShowIts(), progressbar.OptionSetWidth(30),
				progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
		}
		_ = bar.Set64(done)
	}, finish
}

// verdict is nil if everything adds up. settings may explain why it does not.
func verdict(r *audit.Report, settings []string) error {
	var errs []error
	if len(r.Broken) > 0 {
		total := int64(0)
		var rules []string
		for _, rule := range slices.Sorted(maps.Keys(r.Broken)) {
			total += r.Broken[rule]
			rules = append(rules, fmt.Sprintf("%s %d", rule, r.Broken[rule]))
		}
		errs = append(errs, fmt.Errorf("%d violations: %s", total, strings.Join(rules, ", ")))
	}
	if n := r.Unproved(); n > 0 {
		errs = append(errs, fmt.Errorf("outcome of %d requests unknown: see the notes, and docs/AUDIT.md", n))
	}
	if len(errs) > 0 && len(settings) > 0 {
		errs = append(errs, errors.New("settings differ, which may explain it: see the lines about settings, "+
			"and \"Settings that differ\" in docs/CONFIGURATION.md"))
	}
	return errors.Join(errs...)
}

// fates are the rows of the table, in their order.
var fates = []history.Fate{
	history.Fired, history.Cancelled, history.Replaced, history.Expired, history.Undeliverable, history.Completed,
	history.StillPending,
	history.Unmet, history.Rejected, history.Done, history.NothingToDo, history.Undecided, history.Unclear,
	history.Unknown, history.Lost,
}

func printAudit(out io.Writer, r *audit.Report, settings []string) error {
	fmt.Fprintf(out, "as of %s\n", r.AsOf.Format(time.RFC3339))
	for i := range r.Topics {
		t := &r.Topics[i]
		fmt.Fprintln(out, t.Topic)
		w := table.NewWriter()
		w.SetOutputMirror(out)
		w.AppendHeader(table.Row{"outcome", "requests"})
		for _, f := range fates {
			if n := t.Fates[f]; n > 0 {
				w.AppendRow(table.Row{f, n})
			}
		}
		w.AppendFooter(table.Row{"all", t.Requests})
		w.Render()
		fmt.Fprintf(out, "read: %d emissions, %d dead letters, %d events; %d timers are pending\n", t.Emissions,
			t.Letters, t.Events, t.Pending)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(out, "not seen: %s\n", n)
	}
	for _, s := range settings {
		fmt.Fprintf(out, "settings: %s\n", s)
	}
	for i, v := range r.Violations {
		if i == shownViolations {
			fmt.Fprintln(out, "and more: --json lists them")
			break
		}
		fmt.Fprintf(out, "%s: %q: %s%s\n", v.Rule, v.ID, v.Text, places(v.Where))
	}
	if r.AddsUp() {
		_, err := fmt.Fprintln(out, "all add up")
		return err
	}
	return nil
}

// places lists the records that show a violation.
func places(where []history.Place) string {
	if len(where) == 0 {
		return ""
	}
	var texts []string
	for _, p := range where {
		texts = append(texts, p.String())
	}
	return " [" + strings.Join(texts, ", ") + "]"
}

// violationJSON is a violation as it is printed.
type violationJSON struct {
	Rule     string   `json:"rule"`
	ID       string   `json:"id,omitempty"` // if it is UTF-8
	IDBase64 []byte   `json:"idBase64,omitempty"`
	Where    []string `json:"where,omitempty"`
	Text     string   `json:"text"`
}

func printAuditJSON(out io.Writer, r *audit.Report, settings []string) error {
	doc := struct {
		AddsUp     bool                `json:"addsUp"`
		AsOf       time.Time           `json:"asOf"`
		Topics     []audit.TopicReport `json:"topics"`
		NotSeen    []string            `json:"notSeen,omitempty"`
		Settings   []string            `json:"settings,omitempty"`
		Broken     map[string]int64    `json:"broken,omitempty"`
		Violations []violationJSON     `json:"violations,omitempty"`
	}{AddsUp: r.AddsUp(), AsOf: r.AsOf, Topics: r.Topics, NotSeen: r.Notes, Settings: settings, Broken: r.Broken}
	for _, v := range r.Violations {
		j := violationJSON{Rule: v.Rule, Text: v.Text}
		if strings.ToValidUTF8(v.ID, "") == v.ID {
			j.ID = v.ID
		} else {
			j.IDBase64 = []byte(v.ID)
		}
		for _, p := range v.Where {
			j.Where = append(j.Where, p.String())
		}
		doc.Violations = append(doc.Violations, j)
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(doc)
}
