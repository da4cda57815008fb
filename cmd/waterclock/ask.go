package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/client"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/kit/suggest"
	"github.com/waterclock/waterclock/internal/node/config"
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

// topicFlag declares --topic. If the flag is not given, a.topic is set before the command runs.
func (a *asking) topicFlag(cmd *cobra.Command) {
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
	c, err := client.New(to.Options)
	if err != nil {
		return nil, usagef("%v", err)
	}
	return c, nil
}

// states are the states that a filter takes.
var states = []string{
	string(query.Pending), string(query.Triggered), string(query.Paused), string(query.Parked), string(query.Recurring),
	string(query.Remembered),
}

// orders are the orders in which timers may be listed.
var orders = []string{"due", "id"}

// filter holds the flags that select timers.
type filter struct{ dueAfter, dueBefore, prefix, target, state string }

func (f *filter) flags(fs *pflag.FlagSet) {
	fs.StringVar(&f.prefix, "prefix", "", "only IDs that begin with `TEXT`")
	fs.StringVar(&f.target, "target", "", "only those that fire to `TOPIC`")
	fs.StringVar(&f.state, "state", "",
		"only those in `STATE`: pending, triggered, paused, parked, recurring or remembered")
	fs.StringVar(&f.dueAfter, "due-after", "",
		"only those due then or later: `TIME`, RFC 3339 with a zone, or a duration from now, such as 10m")
	fs.StringVar(&f.dueBefore, "due-before", "", "only those due before `TIME`")
}

// query returns the filter as parameters of the API.
func (f *filter) query() (url.Values, error) {
	if f.state != "" && !slices.Contains(states, f.state) {
		return nil, usagef("--state is %q, needs one of %s%s", f.state, strings.Join(states, ", "),
			suggest.Hint(f.state, "", states))
	}
	q := texts("prefix", f.prefix, "target", f.target, "state", f.state)
	for name, value := range map[string]string{"due-after": f.dueAfter, "due-before": f.dueBefore} {
		if err := setTime(q, name, name, value, 1, "a duration from now, as in 10m"); err != nil {
			return nil, err
		}
	}
	return q, nil
}

// texts returns a query of the names whose values are not empty.
func texts(namesAndValues ...string) url.Values {
	q := make(url.Values)
	for i := 0; i < len(namesAndValues); i += 2 {
		if value := namesAndValues[i+1]; value != "" {
			q.Set(namesAndValues[i], value)
		}
	}
	return q
}

// setTime sets a parameter of a query to the time that a flag has, unless the flag is empty. The flag is an instant, or
// a duration: sign times the duration is added to now. relative describes such a duration.
func setTime(q url.Values, name, flag, value string, sign time.Duration, relative string) error {
	at, err := timeOf(flag, value, sign, relative)
	if err == nil && value != "" {
		q.Set(name, strconv.FormatInt(at.UnixMilli(), 10))
	}
	return err
}

// timeOf reads a flag as setTime does, to the millisecond; zero if the flag is empty.
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
	cmd := &cobra.Command{
		Use:   "get [ID]",
		Short: "show the pending timer of an ID, or its history",
		Long: `get asks the HTTP API of an instance what is pending under an ID, and exits 1 if nothing is.
With --history it prints the events of the timer so far, the newest first,
and exits 1 if nothing is known. The request topic must write events. With --json it
prints one event a line.`,
		Example: `  waterclock get a1
  waterclock get a1 --history`,
		Annotations: map[string]string{takesID: ""},
	}
	a.flags(cmd.Flags())
	a.topicFlag(cmd)
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
		var t api.Timer
		err := a.get(cmd, client.Timers(a.topic, id), nil, &t)
		if none := new(client.Problem); errors.As(err, &none) && none.Reason == api.ReasonNotFound {
			return fmt.Errorf("%w; --history shows its past, if the topic writes events", err)
		}
		if err != nil || a.json {
			return err
		}
		return describe(p.stdout, &t)
	}
	return cmd
}

// history prints all events of an ID.
func (a *asking) history(cmd *cobra.Command, id string) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	told := 0
	for q := (url.Values{}); ; {
		var page api.TimerEvents
		if err := c.Call(cmd.Context(), http.MethodGet, client.Timers(a.topic, id, "events"), q, &page); err != nil {
			return err
		}
		told += len(page.Events)
		for _, e := range page.Events {
			if !a.json {
				err = showEvent(a.p.stdout, e.Event)
			} else {
				_, err = fmt.Fprintf(a.p.stdout, "%s\n", e.Event)
			}
			if err != nil {
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

// get reads the response at a path into out. With --json it prints the response unchanged.
func (a *asking) get(cmd *cobra.Command, path string, q url.Values, out any) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	if !a.json {
		return c.Call(cmd.Context(), http.MethodGet, path, q, out)
	}
	var raw json.RawMessage
	if err := c.Call(cmd.Context(), http.MethodGet, path, q, &raw); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(a.p.stdout, "%s\n", raw); err != nil {
		return err
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
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list pending timers",
		Long: `list asks the HTTP API of an instance for the pending timers of a request topic, as
they fire or by ID. With --json it prints one timer a line.

If partitions cannot be asked, it lists the timers of the others, names those that are
missing, and exits 3. With --json they are also the last line, {"missing": [...]}.`,
		Example: `  waterclock list --due-before 1h
  waterclock list --prefix customer-17/ --order id --limit 0 --json`,
	}
	a.flags(cmd.Flags())
	a.topicFlag(cmd)
	f.flags(cmd.Flags())
	a.completePending(cmd, &a.topic)
	a.limitFlag(cmd.Flags(), "timers")
	cmd.Flags().StringVar(&order, "order", "due", "`ORDER`: due, as they fire, or id")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q, err := f.query()
		switch {
		case err != nil:
			return err
		case !slices.Contains(orders, order):
			return usagef("--order is %q, needs %s", order, strings.Join(orders, " or "))
		}
		q.Set("order", order)
		return a.list(cmd, q)
	}
	return cmd
}

func (a *asking) list(cmd *cobra.Command, q url.Values) error {
	var missing gaps
	err := a.pages("ID\tSTATE\tDUE\t\tTARGET\tOCCURRENCE", q, listPage,
		func(c *client.Client, show func(item any, line string) error) (string, error) {
			var got api.TimerList
			if err := c.Call(cmd.Context(), http.MethodGet, client.Timers(a.topic), q, &got); err != nil {
				return "", err
			}
			missing.add(got.Missing)
			for _, t := range got.Timers {
				line := fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d", idOf(t), t.State, t.Due.Format(time.RFC3339),
					relative(time.Until(t.Due)), targetOf(&t.Target), t.Occurrence)
				if err := show(t, line); err != nil {
					return "", err
				}
			}
			return got.Cursor, nil
		})
	return cmp.Or(err, a.printGaps(missing))
}

// limitFlag declares --limit, the largest number of items that pages shows.
func (a *asking) limitFlag(fs *pflag.FlagSet, items string) {
	fs.IntVar(&a.limit, "limit", 50, "list `N` "+items+" at most; 0 for all")
}

// pages asks for one page of a list after the other until --limit items are shown. It sets limit and cursor in q. page
// shows the items of one page, as lines of a table or as JSON, and returns the cursor of the next page.
func (a *asking) pages(head string, q url.Values, most int,
	page func(c *client.Client, show func(item any, line string) error) (cursor string, err error)) error {
	limit := a.limit
	if limit < 0 {
		return usagef("--limit is %d, needs 0 or more", limit)
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	tw := newTable(a.p.stdout)
	if !a.json {
		fmt.Fprintln(tw, head)
	}
	lines, n := json.NewEncoder(a.p.stdout), 0
	show := func(item any, line string) error {
		if n++; a.json {
			return lines.Encode(item)
		}
		_, err := fmt.Fprintln(tw, line)
		return err
	}
	for {
		q.Set("limit", strconv.Itoa(most))
		if limit > 0 {
			q.Set("limit", strconv.Itoa(min(most, limit-n)))
		}
		cursor, err := page(c, show)
		if err != nil {
			return err
		}
		if err := tw.Flush(); err != nil {
			return err
		}
		if cursor == "" {
			return nil
		}
		if limit > 0 && n >= limit {
			if !a.json {
				fmt.Fprintf(a.p.stderr, "there may be more: --limit %d\n", 10*limit)
			}
			return nil
		}
		q.Set("cursor", cursor)
	}
}

func countCommand(p *process) *cobra.Command {
	a := asking{p: p}
	var f filter
	cmd := &cobra.Command{
		Use:   "count",
		Short: "count pending timers",
		Long: `count asks the HTTP API of an instance how many pending timers match a filter.

If partitions cannot be asked, it counts the timers of the others, names those that are
missing, and exits 3. With --json they are in the field missing.`,
		Example: "  waterclock count --prefix customer-17/ --due-before 24h",
	}
	a.flags(cmd.Flags())
	a.topicFlag(cmd)
	f.flags(cmd.Flags())
	a.completePending(cmd, &a.topic)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q, err := f.query()
		if err != nil {
			return err
		}
		var n api.TimerCount
		if err := a.get(cmd, client.Timers(a.topic, "count"), q, &n); err != nil {
			return err
		}
		if !a.json {
			fmt.Fprintln(p.stdout, countOf(&n))
		}
		return gaps(n.Missing).err()
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
