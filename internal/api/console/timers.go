package console

import (
	"cmp"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/api"
)

const timersOnPage = 50

// search is what the form of the page of timers asks for, as it was typed.
type search struct {
	Topic, Q, From, To, Target, State, Order string
	Topics                                   []string
}

type timersPage struct {
	search
	Now    time.Time
	Timers []row
	Next   template.URL // empty: there is no next page
	First  template.URL // empty: it is the first
	Bulk   []actionLink // for all that match
	Select template.URL // what the form of those that are ticked is sent to
	Count  *api.TimerCount
	Wrong  *api.Problem // instead of timers
	// Elsewhere are other topics that have such timers, of a search that names no topic.
	Elsewhere []topicFound
}

// topicFound is how many timers of a topic a search finds.
type topicFound struct {
	Topic string
	*api.TimerCount
	Link template.URL
}

// row is a timer in a list.
type row struct {
	*api.Timer
	Raw   string // its ID
	Link  template.URL
	Pick  string // as it is ticked
	Words string // what its cron expression says
}

func rowOf(t *api.Timer) row {
	id := rawID(t)
	return row{t, id, link("/timer", "topic", t.Topic, "id", id), pickOf(t), ""}
}

// rawID is a timer's ID in its bytes.
func rawID(t *api.Timer) string {
	if len(t.IDBase64) > 0 {
		return string(t.IDBase64)
	}
	return t.ID
}

func (c *Console) timers(v *visit) error {
	p := &timersPage{Now: v.now}
	topic, names, err := v.chosen()
	p.search = search{
		Topic: topic, Topics: names, Q: cmp.Or(v.query("q"), v.query("prefix")), From: v.query("from"), To: v.query("to"),
		Target: v.query("target"), State: v.query("state"), Order: v.query("order"),
	}
	switch {
	case err != nil:
		p.Wrong = asProblem(err)
	case topic == "":
	default:
		if v.query("topic") == "" && p.Q != "" && len(names) > 1 {
			p.lookAround(v, names)
		}
		p.Wrong = p.find(v)
	}
	return v.show(p.Wrong, "timers", "Timers", p)
}

// filter is the search as parameters of the API.
func (s *search) filter(now time.Time) (url.Values, error) {
	q, err := between(now, "due-after", s.From, "due-before", s.To)
	if err != nil {
		return nil, err
	}
	set := func(name, value string) {
		if value != "" {
			q.Set(name, value)
		}
	}
	set("prefix", s.Q)
	set("target", s.Target)
	set("state", s.State)
	return q, nil
}

// lookAround looks in all topics for what the search box has, which names none: the first one that
// has such timers is shown, and the others are named.
func (p *timersPage) lookAround(v *visit, names []string) {
	q, err := p.filter(v.now)
	if err != nil {
		return // find says it
	}
	chosen := p.Topic
	for _, topic := range names {
		var n api.TimerCount
		if v.ask(call{path: []string{"topics", topic, "timers", "count"}, query: q}, &n) != nil || n.Count == 0 {
			continue // what cannot be counted is no find; its own page says why
		}
		p.Topic = topic
		p.Elsewhere = append(p.Elsewhere, topicFound{topic, &n, p.page("", "")})
	}
	p.Topic = chosen
	if len(p.Elsewhere) > 0 {
		p.Topic, p.Elsewhere = p.Elsewhere[0].Topic, p.Elsewhere[1:]
	}
}

// find fills the page.
func (p *timersPage) find(v *visit) *api.Problem {
	// A cursor is one of the same filter, so a time from now on is that of the first page.
	since := v.now
	if at, err := strconv.ParseInt(v.query("since"), 10, 64); err == nil {
		since = time.UnixMilli(at).UTC()
	}
	q, err := p.filter(since)
	if err != nil {
		return wrong(http.StatusBadRequest, err.Error())
	}
	path := []string{"topics", p.Topic, "timers"}
	var n api.TimerCount
	if v.ask(call{path: append(path[:3:3], "count"), query: q}, &n) == nil {
		p.Count = &n
	}
	order := p.Order
	if order == "" && p.Q != "" {
		order = "id" // who looks for an ID has it first then
	}
	q.Set("order", cmp.Or(order, "due"))
	q.Set("limit", strconv.Itoa(timersOnPage))
	if cursor := v.query("cursor"); cursor != "" {
		q.Set("cursor", cursor)
		p.First = p.page("", "")
	}
	var list api.TimerList
	if err := v.ask(call{path: path, query: q}, &list); err != nil {
		return asProblem(err)
	}
	said := make(map[[2]string]string)
	for _, t := range list.Timers {
		r := rowOf(t)
		r.Words = v.inWords(t.Recurrence, said)
		p.Timers = append(p.Timers, r)
	}
	p.Select = link("/selected", "topic", p.Topic)
	for _, a := range bulkActions() {
		p.Bulk = append(p.Bulk, actionLink{a, link("/bulk", "topic", p.Topic, "q", p.Q, "from", asInstant(q.Get("due-after")), "to", asInstant(q.Get("due-before")), "target", p.Target, "state", p.State, "do", a.Do)})
	}
	if list.Cursor != "" {
		p.Next = p.page(list.Cursor, strconv.FormatInt(since.UnixMilli(), 10))
	}
	return nil
}

// inWords is what a cron expression says, as the API explains it; said has those of the page.
func (v *visit) inWords(r *api.Recurrence, said map[[2]string]string) string {
	if r == nil || r.Cron == "" {
		return ""
	}
	words, asked := said[[2]string{r.Cron, r.Zone}]
	if !asked {
		var found api.Occurrences
		if v.ask(call{path: []string{"next"}, query: url.Values{"cron": {r.Cron}, "zone": {r.Zone}, "n": {"0"}}}, &found) == nil {
			words = found.Explanation
			// The zone is beside it, and what is said of clocks that are set is for the timer's page.
			words, _, _ = strings.Cut(words, ", by the clock of ")
			words = strings.TrimSuffix(words, ".") + "."
		}
		said[[2]string{r.Cron, r.Zone}] = words
	}
	return words
}

// Actions are what can be done to timers that are ticked.
func (*timersPage) Actions() []action { return bulkActions() }

// page is the address of one page of the search.
func (p *timersPage) page(cursor, since string) template.URL {
	return link("/timers", "topic", p.Topic, "q", p.Q, "from", p.From, "to", p.To, "target", p.Target,
		"state", p.State, "order", p.Order, "cursor", cursor, "since", since)
}

// States are those to choose from; the first is any.
func (*search) States() []string {
	return []string{"", "pending", "triggered", "paused", "parked", "remembered"}
}
