package route

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// ServeHTTP answers other instances: GET for calls that only read, POST for writes. It asks no other instance.
func (r *Router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	refuse := func(status int, word string, err error) {
		w.Header().Set(said, word)
		http.Error(w, err.Error(), status)
	}
	c, err := r.call(w, req)
	if err != nil {
		refuse(http.StatusBadRequest, failed, err)
		return
	}
	if err := r.o.May(req.Context(), c); err != nil {
		refuse(http.StatusForbidden, forbidden, err)
		return
	}
	a, err := r.own(req, c)
	if err == nil {
		err = r.fits(req.Context(), c, &a)
	}
	var stuck *StuckError
	var noRight *ForbiddenError
	switch {
	case errors.As(err, &stuck):
		refuse(http.StatusServiceUnavailable, stuck.Word, stuck)
	case errors.As(err, &noRight):
		refuse(http.StatusForbidden, forbidden, err)
	case errors.Is(err, errNotOwner):
		refuse(http.StatusMisdirectedRequest, notOwner, err)
	case errors.Is(err, ErrMoving):
		refuse(http.StatusServiceUnavailable, moving, err)
	case err != nil:
		refuse(http.StatusInternalServerError, failed, err)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set(said, answered)
		_ = json.NewEncoder(w).Encode(a) // the caller may be gone
	}
}

// fits takes room for an answer, which is held until the call ends. Without room a read is rejected. A write has
// happened, so at most its outcome is left out.
func (r *Router) fits(ctx context.Context, c *Call, a *Answer) error {
	err := r.o.Room.Reserve(ctx, answerFactor*a.size())
	switch {
	case err == nil:
		return nil
	case c.Kind != Write:
		return fmt.Errorf("%w: there is no room for the answer: %w", ErrMoving, err)
	}
	for i := range a.Written {
		if w := &a.Written[i]; w.Decision != nil {
			w.Decision, w.Why = nil,
				"the request is in the log and is decided, but there was no room for the outcome: look at the timer"
		}
	}
	return nil
}

// size returns about how many bytes of memory the timers of an answer take.
func (a *Answer) size() (n int64) {
	add := func(t *query.Timer) {
		if t != nil {
			n += int64(t.Size())
		}
	}
	add(a.Timer)
	for _, t := range a.Timers {
		add(t)
	}
	for i := range a.Written {
		if d := a.Written[i].Decision; d != nil {
			add(d.Pending)
		}
	}
	return n
}

// call reads a call.
func (r *Router) call(w http.ResponseWriter, req *http.Request) (*Call, error) {
	var text []byte
	var err error
	switch req.Method {
	case http.MethodGet:
		text, err = base64.RawURLEncoding.DecodeString(req.URL.Query().Get("call"))
	case http.MethodPost:
		text, err = io.ReadAll(http.MaxBytesReader(w, req.Body, r.o.MaxBody))
	default:
		err = errors.New("neither GET nor POST")
	}
	if err != nil {
		return nil, err
	}
	c := new(Call)
	if err := json.Unmarshal(text, c); err != nil {
		return nil, err
	}
	if c.Kind.changes() != (req.Method == http.MethodPost) {
		return nil, errors.New("only a POST may write")
	}
	return c, nil
}

// own answers for the partitions of this process.
func (r *Router) own(req *http.Request, c *Call) (Answer, error) {
	if c.To != r.o.Process {
		return Answer{}, fmt.Errorf("it is process %s now, and not %.40q: %w", r.o.Process, c.To, errNotOwner)
	}
	switch c.Kind {
	case Status:
		return Answer{Instance: new(r.o.Local.Status())}, nil
	case Find:
		return r.find(req.Context(), c), nil
	case Jobs, Stop:
		if c.Job == "" && c.Kind == Stop {
			return Answer{}, errors.New("no job is named")
		}
		found, err := r.jobs.JobsHere(req.Context(), c.Job, c.Kind == Stop)
		return Answer{Jobs: found}, err
	}
	p := r.o.Local.Owned(c.at())
	if p == nil {
		return Answer{}, errNotOwner
	}
	return answer(req.Context(), r.o.Local, p, c)
}

// answer answers a call for a partition that is owned here.
func answer(ctx context.Context, l Local, p Partition, c *Call) (Answer, error) {
	a, err := compute(ctx, l, p, c)
	return a, p.Explain(err)
}

func compute(ctx context.Context, l Local, p Partition, c *Call) (Answer, error) {
	switch c.Kind {
	case Get:
		t, err := p.Get(ctx, c.ID)
		return Answer{Timer: t}, err
	case List:
		return listed(ctx, p, c)
	case Count:
		if c.Page == nil {
			break
		}
		if len(c.Until) > 0 {
			counts, err := p.CountUntil(ctx, c.Page.Filter, c.Until)
			return Answer{Counts: counts}, err
		}
		n, err := p.Count(ctx, c.Page.Filter, c.Page.Limit)
		return Answer{Count: &n}, err
	case Write:
		return written(ctx, l, p, c)
	case Status: // not about a partition
	}
	return Answer{}, fmt.Errorf("a call of kind %q that cannot be answered", c.Kind)
}

// listed answers with a page without payloads: with them, a list of large timers would have no bound. A caller that
// needs a payload asks for the timer.
func listed(ctx context.Context, p Partition, c *Call) (Answer, error) {
	if c.Page == nil {
		return Answer{}, errors.New("a list without a page")
	}
	found, err := p.List(ctx, *c.Page)
	if err != nil {
		return Answer{}, err
	}
	found.Cut(cmp.Or(c.Page.Order, query.ByDue), c.Page.Bytes)
	for i, t := range found.Timers {
		if found.Timers[i], err = slim(t); err != nil {
			return Answer{}, err
		}
	}
	return Answer{List: found}, nil
}

// slim returns a timer without its payload; nil for nil.
func slim(t *query.Timer) (*query.Timer, error) {
	if t == nil {
		return nil, nil
	}
	short, slim := *t.Timer, *t
	short.Value, slim.Timer = nil, &short
	if len(t.Value) > sharedValue {
		var err error
		if slim.Timer, err = timer.Decode(short.AppendTo(nil)); err != nil {
			return nil, fmt.Errorf("copy a timer without its payload: %w", err)
		}
	}
	return &slim, nil
}

// sharedValue is the longest payload that a listed timer may keep in memory: all parts of a timer that was read from
// the store share its bytes.
const sharedValue = 512

// written watches, writes, and waits for the decisions. The watch begins first, so no decision is missed, however fast
// the owner is.
func written(ctx context.Context, l Local, p Partition, c *Call) (Answer, error) {
	w, err := p.Watch()
	if err != nil {
		return Answer{}, err
	}
	defer w.Close()
	all := l.Produce(ctx, c.at(), c.Requests)
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.WaitMillis)*time.Millisecond)
	defer cancel()
	for i := range all {
		if all[i].Offset < 0 {
			continue
		}
		d, err := w.Decision(ctx, all[i].Offset)
		if err != nil {
			all[i].Why = undecided(err)
			continue
		}
		if len(c.Requests) > 1 { // the payloads of a batch are not shown, and there may be a thousand large ones
			if d.Pending, err = slim(d.Pending); err != nil {
				all[i].Why = undecided(query.ErrForgotten)
				continue
			}
		}
		all[i].Decision = &d
	}
	return Answer{Written: all}, nil
}

// undecided explains why a decision is not known here.
func undecided(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		why := "the request is in the log and was not decided in time; it will be"
		if stuck, ok := errors.AsType[*StuckError](err); ok {
			why += ": " + stuck.Detail
		}
		return why
	case errors.Is(err, query.ErrForgotten):
		return "the request is in the log and is decided, but how is not remembered: look at the timer"
	}
	return "the request is in the log, and the partition has moved before its decision was known here; its next " +
		"owner decides it"
}
