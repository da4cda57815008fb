package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/kit/suggest"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

const (
	// defaultURL is where dev has its API.
	defaultURL = "http://127.0.0.1:8681"
	// listPage is the number of timers per call.
	listPage = 500
)

// asking holds the flags of a command that calls the HTTP API.
type asking struct {
	p       *process
	profile *profileFlag // nil: none was declared
	to      callee
	topic   string
	json    bool
	limit   int // of the items of a list
}

func (a *asking) flags(fs *pflag.FlagSet) {
	a.profile = addProfileFlag(a.p, fs)
	a.to.flags(fs)
	fs.BoolVar(&a.json, "json", false, "print the API's response, as JSON")
}

// topicFlags declares the flags, and --topic. If that is not given, a.topic is set before the command runs.
func (a *asking) topicFlags(cmd *cobra.Command) {
	a.flags(cmd.Flags())
	cmd.Flags().StringVar(&a.topic, "topic", "",
		"request `TOPIC` (default: that of the profile, else "+defaultRequests+")")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		chosen, err := a.choose()
		a.topic = cmp.Or(a.topic, chosen.Text(config.ProfileTopic), defaultRequests)
		return err
	}
}

// choose returns the profile of the command; nil if it has none.
func (a *asking) choose() (*config.Profile, error) {
	if a.profile == nil {
		return nil, nil
	}
	return a.profile.choose()
}

// client returns a client of the API that the flags choose.
func (a *asking) client() (*client.Client, error) {
	chosen, err := a.choose()
	if err != nil {
		return nil, err
	}
	to := a.to
	if err := to.fill(a.p, chosen); err != nil {
		return nil, err
	}
	c, err := to.client()
	if err != nil {
		return nil, usagef("%v", err)
	}
	return c, nil
}

// states are the states that a filter takes.
var states = plain(query.Pending, query.Triggered, query.Paused, query.Parked, query.Deferred, query.Recurring,
	query.Remembered)

// orders are the orders in which timers may be listed.
var orders = []string{"due", "id"}

// filter holds the flags that select timers.
type filter struct {
	dueAfter, dueBefore, prefix, target, state string
	labels                                     labels
}

// labels holds the flag that selects timers by their labels.
type labels []string

func (l *labels) flag(fs *pflag.FlagSet) {
	fs.StringArrayVar((*[]string)(l), "label", nil, "only timers with a label: `NAME=VALUE`, NAME!=VALUE (or no such "+
		"label) or NAME; may be repeated, all must hold")
}

// read returns the conditions as the client takes them.
func (l labels) read() (string, error) {
	s, fault := timer.ParseSelector(l)
	if fault != "" {
		return "", usagef("--label: %s", fault)
	}
	return string(s), nil
}

func (f *filter) flags(fs *pflag.FlagSet) {
	fs.StringVar(&f.prefix, "prefix", "", "only IDs that begin with `TEXT`")
	fs.StringVar(&f.target, "target", "", "only those that fire to `TOPIC`")
	fs.StringVar(&f.state, "state", "",
		"only those in `STATE`: pending, triggered, paused, parked, deferred, recurring or remembered")
	fs.StringVar(&f.dueAfter, "due-after", "",
		"only those due then or later: `TIME`, RFC 3339 with a zone, or a duration from now, such as 10m")
	fs.StringVar(&f.dueBefore, "due-before", "", "only those due before `TIME`")
	f.labels.flag(fs)
}

// read returns the filter as the client takes it.
func (f *filter) read() (out client.Filter, err error) {
	if f.state != "" && !slices.Contains(states, f.state) {
		return out, usagef("--state is %q, needs one of %s%s", f.state, strings.Join(states, ", "),
			suggest.Hint(f.state, "", states))
	}
	out = client.Filter{Prefix: f.prefix, Target: f.target, State: client.State(f.state)}
	if out.Labels, err = f.labels.read(); err != nil {
		return out, err
	}
	const relative = "a duration from now, as in 10m"
	if out.DueAfter, err = timeOf("due-after", f.dueAfter, 1, relative); err != nil {
		return out, err
	}
	out.DueBefore, err = timeOf("due-before", f.dueBefore, 1, relative)
	return out, err
}

// timeOf reads a flag that is an instant, or a duration: sign times the duration is added to now. relative describes
// such a duration. The time is to the millisecond; zero if the flag is empty.
func timeOf(flag, value string, sign time.Duration, relative string) (at time.Time, err error) {
	if value == "" {
		return at, nil
	}
	if d, bad := parseSpan(value); bad == nil {
		return time.Now().Add(sign * d).UTC().Truncate(time.Millisecond), nil
	}
	at, why := readInstant(value)
	if strings.HasPrefix(why, "needs") {
		why = "needs RFC 3339 with a zone, as in 2026-11-22T09:00:00Z, or " + relative
	}
	if why != "" {
		return at, usagef("--%s is %q, %s", flag, value, why)
	}
	return at.UTC().Truncate(time.Millisecond), nil
}

func getCommand(p *process) *cobra.Command {
	a := asking{p: p}
	var id string
	var history bool
	cmd := &cobra.Command{Use: "get [ID]", Annotations: map[string]string{takesID: ""}}
	a.topicFlags(cmd)
	cmd.Flags().StringVar(&id, "id", "", "timer `ID`, also as an argument")
	a.completePending(cmd, &a.topic)
	cmd.Flags().BoolVar(&history, "history", false, "print its events so far")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkID(cmd.CommandPath(), id); err != nil {
			return err
		}
		if history {
			return a.history(cmd, id)
		}
		var t client.Timer
		err := a.get(cmd, client.Path(a.topic, "timers", id), nil, &t)
		if errors.Is(err, client.ReasonNotFound) {
			return fmt.Errorf("%w; --history shows its past, if the topic writes events", err)
		}
		if err != nil || a.json {
			return err
		}
		return describe(p.stdout, &t)
	}
	return cmd
}

// history prints all events of an ID. It reads the pages itself, because the last one says where the log begins.
func (a *asking) history(cmd *cobra.Command, id string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	told := 0
	for q := (url.Values{}); ; {
		var page api.TimerEvents
		path := client.Path(a.topic, "timers", id, "events")
		if err := c.Call(cmd.Context(), http.MethodGet, path, q, nil, &page); err != nil {
			return err
		}
		told += len(page.Events)
		for _, e := range page.Events {
			if err := a.event(e.Event); err != nil {
				return err
			}
		}
		if page.Cursor == "" {
			if !a.json && page.Log.Oldest != nil {
				fmt.Fprintf(a.p.stderr, "The log of events begins at %s; earlier events are gone.\n",
					page.Log.Oldest.Format(time.RFC3339))
			}
			if told == 0 {
				return fmt.Errorf("topic %s has no events of ID %q", a.topic, id)
			}
			return nil
		}
		q.Set("cursor", page.Cursor)
	}
}

// event prints an event.
func (a *asking) event(data []byte) error {
	if !a.json {
		return showEvent(a.p.stdout, data)
	}
	_, err := fmt.Fprintf(a.p.stdout, "%s\n", data)
	return err
}

// get reads the response at a path into out. With --json it prints the response unchanged.
func (a *asking) get(cmd *cobra.Command, path string, q url.Values, out any) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := c.Call(cmd.Context(), http.MethodGet, path, q, nil, &raw); err != nil {
		return err
	}
	if a.json {
		if _, err := fmt.Fprintf(a.p.stdout, "%s\n", bytes.TrimSpace(raw)); err != nil {
			return err
		}
	}
	return json.Unmarshal(raw, out)
}

// print prints v as JSON, or its text for people.
func (a *asking) print(v any, text func() string) error {
	if a.json {
		return json.NewEncoder(a.p.stdout).Encode(v)
	}
	_, err := fmt.Fprintln(a.p.stdout, text())
	return err
}

func listCommand(p *process) *cobra.Command {
	a := asking{p: p}
	var f filter
	var order string
	cmd := &cobra.Command{Use: "list"}
	a.topicFlags(cmd)
	f.flags(cmd.Flags())
	a.completePending(cmd, &a.topic)
	a.limitFlag(cmd.Flags(), "timers")
	cmd.Flags().StringVar(&order, "order", "due", "`ORDER`: due, as they fire, or id")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		chosen, err := f.read()
		switch {
		case err != nil:
			return err
		case !slices.Contains(orders, order):
			return usagef("--order is %q, needs %s", order, strings.Join(orders, " or "))
		}
		c, size, err := a.lists(listPage)
		if err != nil {
			return err
		}
		timers := c.List(cmd.Context(), a.topic, chosen, client.In(client.Order(order)), client.PageSize(size))
		err = showAll(&a, "ID\tSTATE\tDUE\t\tTARGET\tOCCURRENCE", timers, func(t *client.Timer) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d", shown(t.ID), t.State, t.Due.Format(time.RFC3339),
				relative(time.Until(t.Due)), targetOf(&t.Target), t.Occurrence)
		})
		if missing, ok := errors.AsType[*client.MissingError](err); ok && a.json {
			line := map[string]any{"missing": missing.Partitions}
			return errors.Join(json.NewEncoder(p.stdout).Encode(line), err)
		}
		return err
	}
	return cmd
}

// limitFlag declares --limit, the largest number of items that showAll shows.
func (a *asking) limitFlag(fs *pflag.FlagSet, items string) {
	fs.IntVar(&a.limit, "limit", 50, "list `N` "+items+" at most; 0 for all")
}

// lists returns a client, and how many items a list asks it for at a time, most at most: one more than are shown, which
// tells whether there are more.
func (a *asking) lists(most int) (c *client.Client, size int, err error) {
	if a.limit < 0 {
		return nil, 0, usagef("--limit is %d, needs 0 or more", a.limit)
	}
	if size = most; a.limit > 0 {
		size = min(most, a.limit+1)
	}
	c, err = a.client()
	return c, size, err
}

// showAll prints up to --limit items, as lines of a table or as JSON.
func showAll[T any](a *asking, head string, items iter.Seq2[T, error], line func(T) string) error {
	tw := newTable(a.p.stdout)
	if !a.json {
		fmt.Fprintln(tw, head)
	}
	lines, n := json.NewEncoder(a.p.stdout), 0
	for item, err := range items {
		_, some := errors.AsType[*client.MissingError](err)
		switch {
		case err != nil && n == 0 && !some:
			return err
		case err != nil:
			return errors.Join(tw.Flush(), err)
		case a.limit > 0 && n == a.limit:
			if !a.json {
				fmt.Fprintf(a.p.stderr, "there are more: --limit %d\n", 10*a.limit)
			}
			return tw.Flush()
		case a.json:
			err = lines.Encode(item)
		default:
			_, err = fmt.Fprintln(tw, line(item))
		}
		if n++; n%listPage == 0 { // a long list is not held back until its end
			err = errors.Join(err, tw.Flush())
		}
		if err != nil {
			return err
		}
	}
	return tw.Flush()
}

func countCommand(p *process) *cobra.Command {
	a := asking{p: p}
	var f filter
	cmd := &cobra.Command{Use: "count"}
	a.topicFlags(cmd)
	f.flags(cmd.Flags())
	a.completePending(cmd, &a.topic)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		chosen, err := f.read()
		if err != nil {
			return err
		}
		c, err := a.client()
		if err != nil {
			return err
		}
		n, err := c.Count(cmd.Context(), a.topic, chosen)
		if err == nil {
			err = a.print(n, func() string { return countOf(&n) })
		}
		if err == nil && len(n.Missing) > 0 {
			err = &client.MissingError{Partitions: n.Missing}
		}
		return err
	}
	return cmd
}

// parseSpan reads a duration as in the settings, with days, or a negative one.
func parseSpan(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return d, nil
	}
	return span.Parse(s)
}
