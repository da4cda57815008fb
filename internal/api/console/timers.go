package console

import (
	"cmp"
	"encoding/base64"
	"html/template"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
)

const timersOnPage = 50

// countedOfEach is the number of timers of each partition that a count examines.
const countedOfEach = 10_000

type timersPage struct {
	search
	Timers  []row
	Next    template.URL // empty: there is no next page
	First   template.URL // empty on the first page
	Bulk    []actionLink // for all timers that match
	Actions []action     // for ticked timers
	Select  template.URL // the address to which the form with the ticked timers is sent
	Tabs    []tab
	Count   *api.TimerCount // of the tab that is shown; nil: not known
	Missing []api.Missing   // partitions whose timers are not on the page
	Wrong   *api.Problem    // instead of timers
	Bare    bool            // the search is for all pending timers
	Example []command       // commands that schedule a timer for this tab
	// Elsewhere are other topics with such timers, if the search names no topic.
	Elsewhere []topicFound
	Moved     *moved // the move that led here; nil: none did
}

// Ticks reports whether the timers of the list can be ticked.
func (tp *timersPage) Ticks() bool { return tp.State != "remembered" && len(tp.Actions) > 0 }

// topicFound is the number of timers of a topic that match a search.
type topicFound struct {
	Topic string
	*api.TimerCount
	Link template.URL
}

// tab leads to the timers of a state.
type tab struct {
	State, Label, Says string
	Count              *api.TimerCount
	Link               template.URL
	On                 bool
}

// tabs are all states, named as in the API's filter.
func tabs() []tab {
	return []tab{
		{State: "", Label: "all", Says: "All pending timers"},
		{State: "pending", Label: "pending", Says: "They fire when they are due"},
		{State: "paused", Label: "paused", Says: "They do not fire until they are resumed"},
		{State: "recurring", Label: "recurring", Says: "They fire again and again, whatever their state"},
		{State: "parked", Label: "parked", Says: "They are due, and wait for their target"},
		{State: "deferred", Label: "deferred", Says: "They are due, and wait for the rate of their target"},
		{State: "triggered", Label: "triggered", Says: "They fire now"},
		{State: "remembered", Label: "remembered", Says: "They have fired, and their IDs stay taken for a while"},
	}
}

// row is a timer in a list.
type row struct {
	*api.Timer
	Raw   string // its ID
	Pick  string // value of its check box
	Words string // its cron expression in words

	Labels []labelLink // each narrows the search
	Snooze bool        // the caller may move it
	To     time.Time   // when it will be due; zero: as it is
}

// CountsDown reports whether the timer fires when it is due, so that the page may count down to that.
func (r *row) CountsDown() bool { return r.State == "pending" }

func rowOf(t *api.Timer) row {
	id := rawID(t)
	pick := base64.RawURLEncoding.EncodeToString([]byte(id)) + " " + t.Source // the ID may have any bytes
	return row{Timer: t, Raw: id, Pick: pick}
}

// rawID returns the bytes of a timer's ID.
func rawID(t *api.Timer) string {
	if len(t.IDBase64) > 0 {
		return string(t.IDBase64)
	}
	return t.ID
}

func (c *Console) timers(v *visit) error {
	p := &timersPage{search: v.search("q")}
	topic, names, err := v.chosen()
	p.Moved = v.movedBy(topic, v.raw("id"))
	p.Topic, p.Topics, p.Prefix = topic, names, v.within(topic, cmp.Or(v.query("q"), v.query("prefix")))
	switch {
	case err != nil:
		p.Wrong = asProblem(err)
	case topic == "":
	default:
		if v.query("topic") == "" && p.Prefix+p.Target != "" && len(names) > 1 {
			p.lookAround(v, names)
		}
		p.Wrong = p.find(v)
	}
	return v.show(p.Wrong, "timers", "Timers", p)
}

// lookAround searches all topics. The page shows the first topic with such timers, and names the others.
func (tp *timersPage) lookAround(v *visit, names []string) {
	q, err := tp.ofTimers(v.now.In(v.zone))
	if err != nil {
		return // find reports it
	}
	q.Set("limit", strconv.Itoa(countedOfEach))
	chosen := tp.Topic
	for _, topic := range names {
		var n api.TimerCount
		if v.ask(call{path: []string{"topics", topic, "timers", "count"}, query: q}, &n) != nil || n.Count == 0 {
			continue // if it cannot be counted, its own page explains why
		}
		tp.Topic = topic
		tp.Elsewhere = append(tp.Elsewhere, topicFound{topic, &n, tp.page("", "")})
	}
	tp.Topic = chosen
	if len(tp.Elsewhere) > 0 {
		tp.Topic, tp.Elsewhere = tp.Elsewhere[0].Topic, tp.Elsewhere[1:]
	}
}

// find fills the page.
func (tp *timersPage) find(v *visit) *api.Problem {
	// A cursor belongs to one filter. So times relative to now count from the display of the first page.
	since := v.now
	if at, err := strconv.ParseInt(v.query("since"), 10, 64); err == nil {
		since = time.UnixMilli(at).UTC()
	}
	q, err := tp.ofTimers(since.In(v.zone))
	if err != nil {
		return asProblem(err)
	}
	path := []string{"topics", tp.Topic, "timers"}
	tp.count(v, path, q)
	tp.Bare, tp.Example = tp.Prefix+tp.From+tp.To+tp.Target+tp.Label == "", v.example(tp.Topic, tp.State)
	order := tp.Order
	if order == "" && (tp.Prefix != "" || tp.State == "paused") {
		order = "id" // then a timer with exactly that ID comes first; and paused ones do not fire, in whatever order
	}
	q.Set("order", cmp.Or(order, "due"))
	q.Set("limit", strconv.Itoa(timersOnPage))
	if cursor := v.query("cursor"); cursor != "" {
		q.Set("cursor", cursor)
		tp.First = tp.page("", "")
	}
	var list api.TimerList
	if err := v.ask(call{path: path, query: q}, &list); err != nil {
		return asProblem(err)
	}
	tp.Missing = list.Missing
	cached := make(map[[2]string]string)
	for _, t := range list.Timers {
		r := rowOf(t)
		r.Words = v.inWords(t.Recurrence, cached)
		here := *tp
		r.Labels = labelLinks(t.Labels, func(label string) template.URL {
			here.labelFilter = tp.and(label)
			return here.page("", "")
		})
		r.Snooze = t.State != "remembered" && v.may(access.Write, tp.Topic, r.Raw)
		tp.Timers = append(tp.Timers, r)
	}
	tp.Select = link("/selected", tp.pairs(q)...)
	paused := tp.State == "paused"
	some := tp.State == "" || tp.State == "recurring" // some of these may be paused
	for _, a := range actions() {
		if a.Do == "trigger" || a.Do == "pause" && paused || a.Do == "resume" && !paused && !some {
			continue // there is no job for it, or it would change nothing
		}
		if v.may(access.Write, tp.Topic, tp.Prefix) {
			tp.Actions = append(tp.Actions, a)
		}
		if v.may(access.Admin, tp.Topic, tp.Prefix) {
			tp.Bulk = append(tp.Bulk, actionLink{a, link("/bulk", tp.pairs(q, "do", a.Do)...)})
		}
	}
	if list.Cursor != "" {
		tp.Next = tp.page(list.Cursor, strconv.FormatInt(since.UnixMilli(), 10))
	}
	return nil
}

// count counts the timers of each state that match the rest of the search. Each count is bounded, and shows that.
func (tp *timersPage) count(v *visit, path []string, q url.Values) {
	tp.Tabs = tabs()
	var calls errgroup.Group
	for i := range tp.Tabs {
		t := &tp.Tabs[i]
		here := *tp
		here.State = t.State
		t.Link, t.On = here.page("", ""), t.State == tp.State
		calls.Go(func() error {
			q := maps.Clone(q)
			q.Set("limit", strconv.Itoa(countedOfEach))
			if q.Del("state"); t.State != "" {
				q.Set("state", t.State)
			}
			var n api.TimerCount
			if v.ask(call{path: append(path[:3:3], "count"), query: q}, &n) == nil {
				t.Count = &n
			}
			return nil
		})
	}
	_ = calls.Wait() // an unknown count is not shown
	for _, t := range tp.Tabs {
		if t.On {
			tp.Count = t.Count
		}
	}
}

// inWords returns the API's explanation of a cron expression. cached holds those of the page.
func (a *asker) inWords(r *api.Recurrence, cached map[[2]string]string) string {
	if r == nil || r.Cron == "" {
		return ""
	}
	words, asked := cached[[2]string{r.Cron, r.Zone}]
	if !asked {
		var found api.Occurrences
		if a.ask(call{path: []string{"next"}, query: url.Values{"cron": {r.Cron}, "zone": {r.Zone}, "n": {"0"}}},
			&found) == nil {
			words = found.Explanation
			// The row shows the zone itself, and the timer's page explains changes of the clock.
			words, _, _ = strings.Cut(words, ", by the clock of ")
			words = strings.TrimSuffix(words, ".") + "."
		}
		cached[[2]string{r.Cron, r.Zone}] = words
	}
	return words
}

// page returns the address of one page of the search.
func (tp *timersPage) page(cursor, since string) template.URL {
	return link("/timers", tp.typed("order", tp.Order, "cursor", cursor, "since", since)...)
}
