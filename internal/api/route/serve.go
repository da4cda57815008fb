package route

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/waterclock/waterclock/internal/timer/query"
)

// ServeHTTP answers other instances: GET for calls that only read, POST for writes. It asks nobody
// itself.
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

// fits takes room for an answer, which is held until the call ends. Without room a read is refused. A
// write has happened, so at most its outcome is left out.
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
				"the request is in the log and is decided, but there was no room to tell how: look at the timer"
		}
	}
	return nil
}

// size returns about how many bytes of memory the timers of an answer take.
func (a *Answer) size() (n int64) {
	of := func(t *query.Timer) {
		if t != nil {
			n += int64(t.Size())
		}
	}
	of(a.Timer)
	for _, t := range a.Timers {
		of(t)
	}
	for i := range a.Written {
		if d := a.Written[i].Decision; d != nil {
			of(d.Pending)
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

// own answers for what this process owns.
func (r *Router) own(req *http.Request, c *Call) (Answer, error) {
	if c.To != r.o.Process {
		return Answer{}, fmt.Errorf("it is process %s now, and not %.40q: %w", r.o.Process, c.To, errNotOwner)
	}
	switch c.Kind {
	case Status:
		status := r.o.Local.Status()
		return Answer{Instance: &status}, nil
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
