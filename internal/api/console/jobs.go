package console

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/waterclock/waterclock/internal/api"
)

// A filter chooses timers or dead letters. A page counts them and asks, a job of the API changes or resends them, and
// another page shows its progress.

// bulkPage asks before a job is started.
type bulkPage struct {
	Title    string
	Topic    string
	Filter   []pair // in words
	Count    int64
	More     bool  // there are more than Count
	NotWhole int64 // dead letters with a missing part
	Reasons  []pair
	Examples []row // a few of the timers, as they fire
	Letters  bool  // it is about dead letters
	Fresh    bool  // of them, only those that have not been reviewed
	Delay    bool
	Move     *bulkMove // nil: it does not move them
	Wrong    *api.Problem
	Question string
	Danger   bool
	Action   template.URL // the target of the form
	Back     template.URL
	Rate     string
}

type pair struct{ Name, Value string }

// filterWords describes a filter in words, and the change of a move.
func filterWords(q url.Values) (all []pair) {
	for _, f := range []struct {
		name, words string
		instant     bool
	}{
		{"after", "Written from", true}, {"before", "Written before", true}, {"due-after", "Due from", true},
		{"due-before", "Due before", true},
		{"prefix", "ID begins with", false}, {"reason", "Reason", false}, {"state", "State", false},
		{"target", "Target topic", false}, {"label", "Labels", false}, {"by", "Each by", false}, {"to", "All to", true},
	} {
		value := q.Get(f.name)
		if f.instant {
			value = asInstant(value)
		}
		if value != "" {
			all = append(all, pair{f.words, value})
		}
	}
	if q.Get("all") == "true" {
		all = append(all, pair{"Filter", "none: all of the topic"})
	}
	if q.Get("replace") == "true" {
		all = append(all, pair{"Replaced", "what is pending under their IDs"})
	}
	switch q.Get("reviewed") {
	case "false":
		all = append(all, pair{"Reviewed, or sent again", "no"})
	case "true":
		all = append(all, pair{"Reviewed, or sent again", "yes"})
	}
	return all
}

// asInstant formats Unix milliseconds for a form. A text that is not a number stays as it is.
func asInstant(text string) string {
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return text
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// resendAsk shows how many dead letters a filter chooses, and asks whether to send them again.
func (c *Console) resendAsk(v *visit) error {
	s, path, q, err := v.resending()
	if err != nil {
		return err
	}
	p := &bulkPage{
		Title: "Resend dead letters", Topic: s.Topic, Filter: filterWords(q), Letters: true, Fresh: s.Seen == "",
		Delay: v.isDelay(s.Topic), Rate: "1000",
		Back: link("/dead-letters", s.pairs(q)...), Action: link("/resend", s.pairs(q)...),
	}
	preview, err := v.preview(path, q)
	if err != nil {
		return err
	}
	m := preview.Letters
	p.Count, p.More, p.NotWhole = m.Count-m.NotWhole, !m.Exact, m.NotWhole
	for _, reason := range slices.SortedFunc(maps.Keys(m.Reasons), func(x, y string) int {
		return cmp.Or(cmp.Compare(m.Reasons[y], m.Reasons[x]), cmp.Compare(x, y))
	}) {
		if s.Reason != "" {
			break // it is one
		}
		p.Reasons = append(p.Reasons, pair{reason, number(m.Reasons[reason])})
	}
	return v.show(nil, "bulk", p.Title, p)
}

// preview returns the effect that a job would have.
func (v *visit) preview(path []string, q url.Values) (*api.JobStarted, error) {
	q.Set("dry-run", "true")
	var preview api.JobStarted
	err := v.ask(call{method: http.MethodPost, path: path, query: q}, &preview)
	if err == nil && preview.Letters == nil && preview.Matching == nil {
		err = errors.New("the API did not return how many there are")
	}
	return &preview, err
}

// resending returns the search that a page is to send again, and the parameters of its job.
func (v *visit) resending() (s search, path []string, q url.Values, err error) {
	s = v.search("prefix")
	if s.Topic == "" {
		return s, nil, nil, bad("the address does not say of which topic; go back to the page of dead letters")
	}
	q, err = s.ofLetters(v.now.In(v.zone))
	return s, []string{"topics", s.Topic, "dead-letters", "resend"}, q, err
}

// resendAll starts the job.
func (c *Console) resendAll(v *visit) error {
	_, path, q, err := v.resending()
	if err != nil {
		return err
	}
	replace := ""
	if v.r.PostForm.Get("replace") != "" {
		replace = "true"
	}
	return v.start(path, q, "replace", replace)
}

// start starts a job for a filter, with more parameters, and sends the browser to its page.
func (v *visit) start(path []string, q url.Values, more ...string) error {
	if len(q) == 0 {
		q.Set("all", "true") // as the page said
	}
	set(q, append(more, "rate", v.r.PostForm.Get("rate"))...)
	var started api.JobStarted
	err := v.ask(call{method: http.MethodPost, path: path, query: q}, &started)
	if err == nil && started.Job == nil {
		err = errors.New("the API did not return the job that it started")
	}
	if err != nil {
		return err
	}
	return v.lead(link("/job", "id", started.Job.ID))
}

func (c *Console) jobs(v *visit) error {
	var list api.JobList
	if err := v.ask(call{path: []string{"jobs"}}, &list); err != nil {
		return err
	}
	return v.show(nil, "jobs", "Jobs", &list)
}

type jobPage struct {
	api.Job
	Filter []pair       // in words, with what a move changes
	Back   template.URL // the list with the filter
	Rest   template.URL // of a move that ended early: the page that moves the others; empty: there is none
}

// job shows the progress of a job.
func (c *Console) job(v *visit) error {
	var p jobPage
	if err := v.ask(call{path: []string{"jobs", cmp.Or(v.query("id"), "none")}}, &p.Job); err != nil {
		return err
	}
	q, err := url.ParseQuery(cmp.Or(p.Query, url.Values{"prefix": {p.Prefix}}.Encode()))
	if err != nil {
		return fmt.Errorf("read the job's query: %w", err)
	}
	s := searchOf(p.Topic, q)
	q["label"] = []string{s.Label}
	p.Filter = filterWords(q)
	if p.Back = link("/timers", s.pairs(q)...); p.Action == "resend" {
		s.by, s.Seen = "prefix", map[string]string{"": "all", "true": "reviewed"}[q.Get("reviewed")]
		p.Back = link("/dead-letters", s.pairs(q)...)
	}
	// The query is unknown if the job's instance has an earlier version. Then the link might choose too many timers.
	if p.Query != "" && p.Position != "" && p.State != "running" && p.State != "done" {
		p.Rest = link("/bulk", s.pairs(q, "do", "move", "since", p.Position, "by", q.Get("by"),
			"at", asInstant(q.Get("to")))...)
	}
	return v.show(nil, "job", "Job", &p)
}

func (c *Console) stopJob(v *visit) error {
	id := v.query("id")
	if err := v.ask(call{method: http.MethodDelete, path: []string{"jobs", cmp.Or(id, "none")}}, nil); err != nil {
		return err
	}
	return v.lead(link("/job", "id", id))
}

// bulkOf returns the search that a bulk action is for, and the parameters of its job.
func (v *visit) bulkOf() (s search, do *action, path []string, q url.Values, err error) {
	s = v.search("q")
	do = actionOf(v.query("do"))
	if s.Topic == "" || do == nil || do.Do == "trigger" {
		return s, nil, nil, nil, bad(
			"the address does not say what to do with timers of which topic; go back to the list of timers")
	}
	q, err = s.ofTimers(v.now.In(v.zone))
	return s, do, []string{"topics", s.Topic, "timers", do.Do}, q, err
}

// bulkAsk shows how many timers a job would change, and asks.
func (c *Console) bulkAsk(v *visit) error {
	s, do, path, q, err := v.bulkOf()
	if err != nil {
		return err
	}
	p := &bulkPage{
		Title: do.Verb() + " timers", Topic: s.Topic, Filter: filterWords(q), Danger: do.Danger, Rate: "5000",
		Question: do.Many, Back: link("/timers", s.pairs(q)...), Action: link("/bulk", s.pairs(q, "do", do.Do)...),
	}
	few := set(maps.Clone(q), "order", "due", "limit", "3")
	if do.Do == "move" {
		if p.Move, err = v.bulkMove(v.query); err != nil {
			p.Wrong = bad(err.Error())
		}
		pairs := s.pairs(q, "do", do.Do)
		for i := 0; i+1 < len(pairs); i += 2 {
			p.Move.Hidden = append(p.Move.Hidden, pair{pairs[i], pairs[i+1]})
		}
		if !p.Move.Ready {
			return v.show(p.Wrong, "bulk", p.Title, p)
		}
		p.Action = link("/bulk", s.pairs(q, p.Move.pairs()...)...)
		name, value := p.Move.parameter()
		q.Set(name, value)
	}
	preview, err := v.preview(path, q)
	if err != nil {
		return err
	}
	p.Count, p.More = preview.Matching.Count, !preview.Matching.Exact
	p.Title = do.Verb() + " " + plural(p.Count, "timer", "timers")
	if p.More {
		p.Title = do.Verb() + " at least " + plural(p.Count, "timer", "timers")
	}
	var list api.TimerList
	if err := v.ask(call{path: []string{"topics", s.Topic, "timers"}, query: few}, &list); err != nil {
		return err
	}
	for _, t := range list.Timers {
		r := rowOf(t)
		if p.Move != nil {
			r.To = p.Move.of(t)
		}
		p.Examples = append(p.Examples, r)
	}
	return v.show(nil, "bulk", p.Title, p)
}

func (c *Console) bulk(v *visit) error {
	_, do, path, q, err := v.bulkOf()
	switch {
	case err != nil:
		return err
	case do.Do != "move":
		return v.start(path, q)
	}
	m, err := v.bulkMove(v.query)
	if err != nil || !m.Ready {
		return bad(cmp.Or(err, errors.New("no move is given")).Error())
	}
	name, value := m.parameter()
	return v.start(path, q, name, value, "unchanged-since", m.Since)
}
