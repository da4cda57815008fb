package console

import (
	"encoding/base64"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/api"
	"golang.org/x/sync/errgroup"
)

// Actions on several timers. For all that a filter chooses the API has a job. For those that were ticked in a list
// there is one call of the API each.

// stepsAtOnce is how many timers of a selection are steered at a time.
const stepsAtOnce = 8

// bulkActions returns the actions that the API has jobs for.
func bulkActions() []action {
	return slices.DeleteFunc(actions(), func(a action) bool { return a.Do == "trigger" })
}

// bulkOf returns the search that a bulk action is for, and the parameters of its job.
func (v *visit) bulkOf() (s search, do *action, path []string, q url.Values, err error) {
	s = v.search()
	do = actionOf(v.query("do"))
	if s.Topic == "" || do == nil || do.Do == "trigger" {
		return s, nil, nil, nil, wrong(http.StatusBadRequest,
			"the address does not say what to do with timers of which topic; go back to the list of timers")
	}
	if q, err = s.filter(v.now.In(v.zone)); err != nil {
		return s, nil, nil, nil, wrong(http.StatusBadRequest, err.Error())
	}
	return s, do, []string{"topics", s.Topic, "timers", do.Do}, q, nil
}

// bulkAsk shows how many timers a job would change, and asks.
func (c *Console) bulkAsk(v *visit) error {
	s, do, path, q, err := v.bulkOf()
	if err != nil {
		return err
	}
	p := &bulkPage{
		Topic: s.Topic, Filter: filterWords(q), Danger: do.Danger, Rate: "5000",
		Question: map[string]string{
			"cancel": "They will not fire. This cannot be taken back.",
			"pause":  "They stay pending and do not fire until they are resumed.",
			"resume": "They fire when they are due; what is past due fires at once.",
		}[do.Do],
		Back: link("/timers", s.pairs(q)...), Action: link("/bulk", s.pairs(q, "do", do.Do)...),
	}
	few := maps.Clone(q)
	few.Set("order", "due")
	few.Set("limit", "3")
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
		p.Examples = append(p.Examples, rowOf(t))
	}
	return v.show(nil, "bulk", p.Title, p)
}

func (c *Console) bulk(v *visit) error {
	_, _, path, q, err := v.bulkOf()
	return v.start(path, q, err)
}

// pickOf returns what the check box of a timer sends: its ID, which may have any bytes, and its source.
func pickOf(t *api.Timer) string {
	return base64.RawURLEncoding.EncodeToString([]byte(rawID(t))) + " " + t.Source
}

type picked struct {
	Value   string // of the field
	ID      string
	Source  string
	Link    template.URL
	Outcome string // empty before the action
	Wrong   *api.Problem
}

type pickPage struct {
	Action action
	Topic  string
	Picked []picked
	Done   bool
	Failed int
	Back   template.URL // the list
	Self   template.URL // where the form is sent
}

// selected asks whether to change the timers that were ticked, and changes them once the answer is yes.
func (c *Console) selected(v *visit) error {
	topic, do := v.query("topic"), actionOf(v.r.PostForm.Get("do"))
	if topic == "" || do == nil {
		return wrong(http.StatusBadRequest,
			"the form does not say what to do with timers of which topic; go back to the list of timers")
	}
	s := v.search()
	list := []string{"topic", topic, "q", s.Q, "from", s.From, "to", s.To, "target", s.Target, "state", s.State}
	p := &pickPage{Action: *do, Topic: topic, Back: link("/timers", list...), Self: link("/selected", list...)}
	for _, value := range v.r.PostForm["pick"] {
		id, source, ok := strings.Cut(value, " ")
		raw, err := base64.RawURLEncoding.DecodeString(id)
		if !ok || err != nil || len(p.Picked) >= timersOnPage {
			return wrong(http.StatusBadRequest,
				"the form is not one of the list of timers; go back and tick them again")
		}
		p.Picked = append(
			p.Picked, picked{Value: value, ID: string(raw), Source: source,
				Link: link("/timer", "topic", topic, "id", string(raw))})
	}
	if len(p.Picked) == 0 {
		return wrong(http.StatusBadRequest,
			"no timer is ticked; go back and tick some, or choose what is for all that match")
	}
	if v.r.PostForm.Get("sure") != "" {
		p.steer(v)
	}
	return v.show(nil, "selected", do.Label, p)
}

// nothingSelected answers a GET of the address that selections are posted to.
func (c *Console) nothingSelected(v *visit) error {
	return wrong(http.StatusBadRequest, "timers are ticked in the list of timers; go there first")
}

// steer changes each timer, on condition that it is still the one that was ticked.
func (p *pickPage) steer(v *visit) {
	p.Done = true
	var steps errgroup.Group
	steps.SetLimit(stepsAtOnce)
	for i := range p.Picked {
		steps.Go(func() error {
			one := &p.Picked[i]
			result, wrong := v.steer(&p.Action, p.Topic, one.ID, one.Source)
			if one.Wrong = wrong; wrong == nil {
				one.Outcome = doneWords(result.Outcome, "")
			}
			return nil
		})
	}
	_ = steps.Wait() // each timer has its own problem
	for _, one := range p.Picked {
		if one.Wrong != nil {
			p.Failed++
		}
	}
}
