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

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/client"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kit/span"
)

// shownPayload limits the bytes of a payload that get prints.
const shownPayload = 2000

// newTable returns a writer that aligns columns, which tabs separate.
func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

func describe(w io.Writer, t *api.Timer) error {
	tw := newTable(w)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(tw, "%s\t%s\n", name, client.Printable(value))
		}
	}
	row("ID", idOf(t))
	row("state", t.State)
	row("due", fmt.Sprintf("%s (%s)", t.Due.Format(time.RFC3339Nano), relative(time.Until(t.Due))))
	row("occurrence", strconv.FormatInt(t.Occurrence, 10))
	if r := t.Recurrence; r != nil {
		if r.Cron == "" {
			row("every", strings.TrimSpace(r.Every+" "+r.Zone))
		} else {
			row("cron", strings.TrimSpace(r.Cron+" "+r.Zone))
		}
		if r.Start != nil {
			row("start", r.Start.Format(time.RFC3339Nano))
		}
		if r.Until != nil {
			row("until", r.Until.Format(time.RFC3339Nano))
		}
		if r.Count > 0 {
			row("count", strconv.FormatInt(r.Count, 10))
		}
		row("jitter", r.Jitter)
		row("catch-up", r.CatchUp)
	}
	row("jitter", t.Jitter)
	row("max-late", t.MaxLate)
	row("target", targetOf(&t.Target))
	row("source", t.Source)
	row("partition", fmt.Sprintf("%s/%d", t.Topic, t.Partition))
	row("note", t.Note)
	for _, h := range t.Headers {
		row("header", textOf(&h.Name, nil)+"="+textOf(h.Value, h.ValueBase64))
	}
	if b := t.Payload; b != nil {
		text := textOf(b.Text, b.Base64)
		if b.Null {
			text = "null"
		}
		if len(text) > shownPayload {
			text = strings.ToValidUTF8(text[:shownPayload], "") + " ... (all of it with --json)"
		}
		row("payload", text)
	}
	return tw.Flush()
}

// textOf returns a value as text on one line.
func textOf(text *string, base64 []byte) string {
	if text == nil {
		return fmt.Sprintf("%q", base64)
	}
	if quoted := strconv.Quote(*text); quoted != `"`+*text+`"` {
		return quoted
	}
	return *text
}

func idOf(t *api.Timer) string {
	if t.ID == "" {
		return textOf(nil, t.IDBase64)
	}
	return textOf(&t.ID, nil)
}

func targetOf(t *api.Target) string {
	text := t.Topic
	if t.Partition != nil {
		text += fmt.Sprintf("/%d", *t.Partition)
	}
	if !t.KeyNull {
		text += ", key " + textOf(t.Key, t.KeyBase64)
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

func countOf(n *api.TimerCount) string {
	if n.Exact {
		return strconv.FormatInt(n.Count, 10)
	}
	return fmt.Sprintf("%d at least", n.Count)
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
	if unknown > 0 {
		fmt.Fprintf(tw, "\n%d timers are pending on %d partitions; the state of %d is unknown.\n", s.Pending,
			len(s.Partitions)-unknown, unknown)
	} else {
		fmt.Fprintf(tw, "\n%d timers are pending.\n", s.Pending)
	}
	return tw.Flush()
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
		ID       *string `json:"id"`
		IDBase64 []byte  `json:"idBase64"`
		Type     string  `json:"type"`
		At       int64   `json:"at"`
		Lateness *int64  `json:"lateness"`
		Target   string  `json:"target"`
		Reason   string  `json:"reason"`
		Detail   string  `json:"detail"`
	}
	if json.Unmarshal(data, &e) != nil || e.Type == "" { // another program wrote it
		_, err := fmt.Fprintf(w, "unreadable %s\n", textOf(e.ID, e.IDBase64))
		return err
	}
	line := fmt.Sprintf("%s %s %s", time.UnixMilli(e.At).UTC().Format("2006-01-02T15:04:05.000Z07:00"),
		textOf(&e.Type, nil), textOf(e.ID, e.IDBase64))
	if e.Lateness != nil {
		line += fmt.Sprintf(", %d ms late", *e.Lateness)
	}
	for _, more := range []string{e.Target, e.Reason, e.Detail} {
		if more != "" {
			line += ", " + textOf(&more, nil)
		}
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// partError means that partitions are missing from the printed result.
type partError struct{ missing []api.Missing }

// Error has a line for each detail, which names all partitions that have the same.
func (p *partError) Error() string {
	var details []string
	by := make(map[string][]string) // partitions by detail
	for i := range p.missing {
		m := &p.missing[i]
		if by[m.Detail] == nil {
			details = append(details, m.Detail)
		}
		by[m.Detail] = append(by[m.Detail], fmt.Sprint(m.Partition))
	}
	var lines []string
	for _, detail := range details {
		which, are := "partition", "is"
		if len(by[detail]) > 1 {
			which, are = "partitions", "are"
		}
		lines = append(lines, fmt.Sprintf("%s %s %s missing: %s", which, strings.Join(by[detail], ", "), are, detail))
	}
	return strings.Join(lines, "\n")
}

// gaps are the partitions that a list or a count lacks.
type gaps []api.Missing

// add adds those of one more page.
func (g *gaps) add(missing []api.Missing) {
	for _, m := range missing {
		if !slices.ContainsFunc(*g, func(known api.Missing) bool { return known.Partition == m.Partition }) {
			*g = append(*g, m)
		}
	}
	slices.SortFunc(*g, func(x, y api.Missing) int { return cmp.Compare(x.Partition, y.Partition) })
}

// err returns a partError, or nil if nothing is missing.
func (g gaps) err() error {
	if len(g) == 0 {
		return nil
	}
	return &partError{g}
}

// printGaps returns the error of a list with gaps. With --json it first prints them, as the last line of the list.
func (a *asking) printGaps(g gaps) error {
	if len(g) > 0 && a.json {
		if err := json.NewEncoder(a.p.stdout).Encode(map[string]gaps{"missing": g}); err != nil {
			return err
		}
	}
	return g.err()
}
