package console

import (
	"cmp"
	"encoding/base64"
	"html/template"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/internal/api"
)

// Actions on timers that were ticked in a list. For all timers of a filter the API has a job; here, there is one call
// of the API for each timer, on condition that it still has the source that it was ticked with.
//
// A move asks twice. Its preview reads the timers, and shows their due times and the new ones. The form that confirms
// it has the due times that were shown, because a timer that recurs keeps its source when it fires (see move.go).

// stepsAtOnce is the number of timers of a selection that are steered concurrently.
const stepsAtOnce = 8

type picked struct {
	Value   string // of the field: ID, source and, once a preview has shown it, the due time
	ID      string
	Source  string
	shown   string // the due time that the preview has shown, Unix ms; empty: there was none
	T       *row   // as read for a move; nil: it was not, or could not be read
	Outcome string // empty before the action
	Wrong   *api.Problem
}

type pickPage struct {
	Action action
	Topic  string
	Picked []picked
	Move   *bulkMove // nil: it does not move them
	Done   bool
	Failed int
	Wrong  *api.Problem // the move cannot be made of any
	Back   template.URL // the list
	Self   template.URL // the target of the form
}

// Left returns the number of timers that the action is for. A preview leaves out those that have changed.
func (p *pickPage) Left() int {
	if p.Done {
		return len(p.Picked)
	}
	return len(p.Picked) - p.Failed
}

// selected asks whether to change the ticked timers, and changes them once the answer is yes.
func (c *Console) selected(v *visit) error {
	topic, do := v.query("topic"), actionOf(v.r.PostForm.Get("do"))
	if topic == "" || do == nil {
		return bad("the form does not say what to do with timers of which topic; go back to the list of timers")
	}
	s := v.search("q")
	list := s.typed()
	p := &pickPage{Action: *do, Topic: topic, Back: link("/timers", list...), Self: link("/selected", list...)}
	for _, value := range v.r.PostForm["pick"] {
		parts := append(strings.Split(value, " "), "")
		raw, err := base64.RawURLEncoding.DecodeString(parts[0])
		if len(parts) < 3 || err != nil || len(p.Picked) >= timersOnPage {
			return bad("the form is not one of the list of timers; go back and tick them again")
		}
		p.Picked = append(p.Picked, picked{Value: value, ID: string(raw), Source: parts[1], shown: parts[2]})
	}
	if len(p.Picked) == 0 {
		return bad("no timer is ticked; go back and tick some, or choose an action for all that match")
	}
	p.Done = v.r.PostForm.Get("sure") != ""
	if do.Do == "move" {
		var err error
		if p.Move, err = v.bulkMove(v.r.PostForm.Get); err != nil {
			p.Wrong = bad(err.Error())
		}
		p.Done = p.Done && p.Move.Ready
		p.each(func(one *picked) *api.Problem { return v.movePicked(p, one) })
	} else if p.Done {
		p.each(func(one *picked) *api.Problem { return v.steerPicked(p, one) })
	}
	return v.show(p.Wrong, "selected", do.Label, p)
}

// nothingTicked answers a GET of the address that selections are posted to.
func nothingTicked(*visit) error {
	return bad("timers are ticked in the list of timers; go there first")
}

// each does something with each timer, which has a problem of its own.
func (p *pickPage) each(do func(*picked) *api.Problem) {
	var steps errgroup.Group
	steps.SetLimit(stepsAtOnce)
	for i := range p.Picked {
		steps.Go(func() error {
			p.Picked[i].Wrong = do(&p.Picked[i])
			return nil
		})
	}
	_ = steps.Wait()
	for _, one := range p.Picked {
		if one.Wrong != nil {
			p.Failed++
		}
	}
}

// steerPicked changes a timer, on condition that it is still the one that was ticked.
func (a *asker) steerPicked(p *pickPage, one *picked) *api.Problem {
	result, wrong := a.steer(&p.Action, p.Topic, one.ID, one.Source)
	one.Outcome = doneWords(result.Outcome, "")
	return wrong
}

// movePicked reads a timer for the preview of a move or, once that is confirmed, moves it, on condition that it is
// still the one that was ticked, and due when the preview has said.
func (v *visit) movePicked(p *pickPage, one *picked) *api.Problem {
	t, err := v.timerOf(p.Topic, one.ID)
	if err != nil {
		return asProblem(err)
	}
	read, due := rowOf(t), strconv.FormatInt(t.DueMillis, 10)
	one.T, one.Value = &read, read.Pick+" "+due
	if t.Source != one.Source || p.Done && due != one.shown {
		return v.changed(t)
	}
	if p.Done {
		result, wrong := v.moveTo(p.Topic, one.ID, one.Source, p.Move.of(t))
		if wrong != nil {
			return wrong
		}
		one.Outcome = cmp.Or(doneWords(result.Outcome, ""), "Moved.")
	}
	if p.Move.Ready {
		read.To = p.Move.of(t)
	}
	return nil
}
