package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/timer"
)

// shownPayload limits the bytes of a payload that get prints.
const shownPayload = 2000

// newTable returns a writer that aligns columns, which tabs separate.
func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

func describe(w io.Writer, t *client.Timer) error {
	tw := newTable(w)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(tw, "%s\t%s\n", name, client.Printable(value))
		}
	}
	row("ID", shown(t.ID))
	row("state", string(t.State))
	row("due", fmt.Sprintf("%s (%s)", t.Due.Format(time.RFC3339Nano), relative(time.Until(t.Due))))
	if labels, _ := timer.LabelsOf(t.Labels); labels != "" {
		row("labels", shown(string(labels)))
	}
	row("occurrence", strconv.FormatInt(t.Occurrence, 10))
	if r := t.Recurrence; r != nil {
		if r.Cron == "" {
			row("every", strings.TrimSpace(r.Every+" "+r.Zone))
		} else {
			row("cron", strings.TrimSpace(r.Cron+" "+r.Zone))
		}
		if !r.Start.IsZero() {
			row("start", r.Start.Format(time.RFC3339Nano))
		}
		if !r.Until.IsZero() {
			row("until", r.Until.Format(time.RFC3339Nano))
		}
		if r.Count > 0 {
			row("count", strconv.FormatInt(r.Count, 10))
		}
		row("jitter", r.Jitter)
		row("catch-up", string(r.CatchUp))
	}
	row("jitter", t.Jitter)
	row("not-on", strings.Join(t.NotOn, ","))
	row("shift", string(t.Shift))
	row("max-late", t.MaxLate)
	row("remember", t.Remember)
	row("target", targetOf(&t.Target))
	row("source", t.Source.String())
	row("partition", fmt.Sprintf("%s/%d", t.Topic, t.Partition))
	row("note", t.Note)
	for _, h := range t.Headers {
		row("header", shown(h.Key)+"="+valueOf(h.Value))
	}
	text := "null"
	if t.Value != nil {
		text = valueOf(t.Value)
	}
	if len(text) > shownPayload {
		text = strings.ToValidUTF8(text[:shownPayload], "") + " ... (all of it with --json)"
	}
	row("payload", text)
	return tw.Flush()
}

// shown returns a value as text on one line.
func shown[S ~string](text S) string {
	if quoted := strconv.Quote(string(text)); quoted != `"`+string(text)+`"` {
		return quoted
	}
	return string(text)
}

// valueOf returns a value as text on one line; that of null has quotes.
func valueOf(value []byte) string {
	if value == nil {
		return `""`
	}
	return shown(string(value))
}

func targetOf(t *client.Target) string {
	text := t.Topic
	if t.Partition != nil {
		text += fmt.Sprintf("/%d", *t.Partition)
	}
	if t.Key != nil {
		text += ", key " + shown(string(t.Key))
	}
	return text
}

// relative returns a duration from now, for people.
func relative(d time.Duration) string {
	unit := time.Second
	if d.Abs() < 10*time.Second {
		unit = time.Millisecond
	}
	if d < 0 {
		return span.String(d.Abs().Round(unit)) + " ago"
	}
	return "in " + span.String(d.Round(unit))
}

func countOf(n *client.Count) string {
	if n.Exact {
		return strconv.FormatInt(n.N, 10)
	}
	return fmt.Sprintf("%d at least", n.N)
}

func showCluster(w io.Writer, s *api.Cluster) error {
	tw := newTable(w)
	fmt.Fprintln(tw, "INSTANCE\tAPI\tVERSION\tSINCE\tSETTINGS\t")
	for i := range s.Instances {
		in := &s.Instances[i]
		since := ""
		if !in.Started.IsZero() {
			since = in.Started.Format(time.RFC3339)
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n",
			in.Name, cmp.Or(in.API, "none"), in.Version, since, settingsOf(in), in.Problem)
	}
	fmt.Fprintln(tw, "\nPARTITION\tSTATE\tOWNER\tPENDING\tPARKED\tLAG\t")
	slices.SortFunc(s.Partitions, func(x, y api.OwnedPartition) int {
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	unknown := 0
	for i := range s.Partitions {
		q := &s.Partitions[i]
		why := q.Reason
		if q.State != "live" && !q.Since.IsZero() {
			why = "since " + q.Since.Format(time.RFC3339) + ": " + cmp.Or(why, "no reason is known")
		}
		owner, pending, parked, lag := cmp.Or(q.Owner, "nobody"), strconv.FormatInt(q.Pending, 10),
			strconv.FormatInt(q.Parked, 10), strconv.FormatInt(q.LagRecords, 10)
		// No instance has answered for it: its figures are 0 and mean nothing.
		if q.State == "unknown" || q.State == "unowned" {
			unknown++
			owner, pending, parked, lag = cmp.Or(q.Owner, "?"), "?", "?", "?"
		}
		fmt.Fprintf(tw, "%s/%d\t%s\t%s\t%s\t%s\t%s\t%s\n", q.Topic, q.Partition, q.State, owner, pending,
			parked, lag, why)
	}
	for i := range s.Unhealthy {
		u := &s.Unhealthy[i]
		fmt.Fprintf(tw, "\nunhealthy target %s since %s: it %s\n", u.Name(), u.Since.Format(time.RFC3339), u.Meaning())
	}
	for i := range s.Deferred {
		showDeferred(tw, &s.Deferred[i])
	}
	for _, m := range s.MissingCalendars {
		fmt.Fprintf(tw, "\nmissing calendar %s: %d timers of %s name it, and it excludes nothing\n", shown(m.Calendar),
			m.Timers, m.Topic)
	}
	if unknown > 0 {
		fmt.Fprintf(tw, "\n%d timers are pending on %d partitions; the state of %d is unknown.\n", s.Pending,
			len(s.Partitions)-unknown, unknown)
	} else {
		fmt.Fprintf(tw, "\n%d timers are pending.\n", s.Pending)
	}
	return tw.Flush()
}

// showDeferred says what waits for the rate of a target.
func showDeferred(w io.Writer, d *route.DeferredTarget) {
	fmt.Fprintf(w, "\ndeferred for %s, which has %g a second: %d timers", d.Target, d.PerSecond, d.Timers)
	if !d.Oldest.IsZero() {
		fmt.Fprintf(w, ", the first due since %s", d.Oldest.Format(time.RFC3339))
	}
	if !d.Through.IsZero() {
		fmt.Fprintf(w, ", through at about %s", d.Through.Format(time.RFC3339))
	}
	fmt.Fprintln(w)
}

// settingsOf reports whether an instance has the settings of the others.
func settingsOf(in *route.Instance) string {
	switch {
	case in.SettingsDiffer == nil:
		return "not known"
	case len(in.SettingsDiffer) == 0:
		return "the same"
	}
	return "differ: " + strings.Join(in.SettingsDiffer, ", ")
}

func showEvent(w io.Writer, data []byte) error {
	var e struct {
		ID       string `json:"id"`
		IDBase64 []byte `json:"idBase64"`
		Type     string `json:"type"`
		At       int64  `json:"at"`
		Lateness *int64 `json:"lateness"`
		Target   string `json:"target"`
		Reason   string `json:"reason"`
		Detail   string `json:"detail"`
	}
	if json.Unmarshal(data, &e) != nil || e.Type == "" { // another program wrote it
		_, err := fmt.Fprintf(w, "unreadable %s\n", shown(cmp.Or(e.ID, string(e.IDBase64))))
		return err
	}
	line := fmt.Sprintf("%s %s %s", time.UnixMilli(e.At).UTC().Format("2006-01-02T15:04:05.000Z07:00"),
		shown(e.Type), shown(cmp.Or(e.ID, string(e.IDBase64))))
	if e.Lateness != nil {
		line += fmt.Sprintf(", %d ms late", *e.Lateness)
	}
	for _, more := range []string{e.Target, e.Reason, e.Detail} {
		if more != "" {
			line += ", " + shown(more)
		}
	}
	_, err := fmt.Fprintln(w, line)
	return err
}
