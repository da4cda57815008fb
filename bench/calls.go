package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// callTimeout limits one call over HTTP.
const callTimeout = time.Minute

// Calls are HTTP calls of one kind. Each caller makes one after the other. All answers were right: otherwise there is no
// report.
type Calls struct {
	Name      string   `json:"name"`
	Bare      bool     `json:"bare"`
	Callers   int      `json:"callers"`
	Calls     int      `json:"calls"`
	PerSecond float64  `json:"per_second"`
	Answered  Lateness `json:"answered"` // time from a call to the end of its answer
	CPU       *CPU     `json:"cpu,omitempty"`
	// PerStep is how many calls shared a transaction of the service on average.
	PerStep float64 `json:"per_transaction,omitempty"`
}

// request is one call.
type request struct {
	method, path string
	header       http.Header
	body         []byte
}

// answered says what is wrong with an answer.
type answered func(*vegeta.Result) error

// status returns a check that looks only at the status.
func status(want int) answered {
	return func(got *vegeta.Result) error { return wantStatus(want, int(got.Code), got.Body) }
}

func wantStatus(want, got int, body []byte) error {
	if got == want {
		return nil
	}
	return fmt.Errorf("answered %d, not %d: %.300s", got, want, body)
}

// traffic is calls of one kind.
type traffic struct {
	name    string
	addr    string
	pid     int // of the server
	callers int
	calls   int     // 0: until the context ends
	rate    float64 // a second; 0: each caller calls again when it is answered
	ask     func(i int) request
	check   answered
}

// drive makes the calls and measures them. It ends at the first error.
func drive(ctx context.Context, r *run, t traffic) (*Calls, error) {
	var next atomic.Int64
	targets := func(target *vegeta.Target) error {
		i := int(next.Add(1)) - 1
		if t.calls > 0 && i >= t.calls || ctx.Err() != nil {
			return vegeta.ErrNoTargets
		}
		q := t.ask(i)
		*target = vegeta.Target{Method: q.method, URL: "http://" + t.addr + q.path, Header: q.header, Body: q.body}
		return nil
	}
	callers := uint64(max(1, t.callers))
	attacker := vegeta.NewAttacker(vegeta.Workers(callers), vegeta.MaxWorkers(callers), vegeta.Connections(int(callers)), vegeta.MaxConnections(int(callers)),
		vegeta.Timeout(callTimeout), vegeta.HTTP2(false))
	pace := vegeta.ConstantPacer{} // as fast as they are answered
	if t.rate > 0 {
		pace = vegeta.ConstantPacer{Freq: 1, Per: seconds(1 / t.rate)}
	}
	var took []int32 // µs
	var failed error
	bar := r.bar(t.name, t.calls)
	m := &meter{r: r}
	m.start(t.pid)
	for got := range attacker.Attack(targets, pace, 0, t.name) {
		if failed != nil || got.Error == vegeta.ErrNoTargets.Error() {
			continue
		}
		if failed = errors.Join(answerError(got), t.check(got)); failed != nil {
			attacker.Stop()
		}
		if took = append(took, int32(got.Latency.Microseconds())); len(took)%1024 == 0 {
			_ = bar.Set(len(took))
		}
	}
	m.stop()
	_ = bar.Finish()
	switch {
	case failed != nil:
		return nil, fmt.Errorf("%s: %w", t.name, failed)
	case len(took) < t.calls:
		return nil, errors.Join(ctx.Err(), fmt.Errorf("%s: %d calls of %d", t.name, len(took), t.calls))
	case t.calls == 0:
		return nil, nil // calls without a number are not reported
	}
	c := &Calls{Name: t.name, Callers: t.callers, Calls: t.calls, Answered: *latenessOf(took, 1000)}
	c.CPU, c.PerStep, _ = m.cost(t.calls)
	c.PerSecond = float64(t.calls) / m.end.at.Sub(m.begin.at).Seconds()
	return c, nil
}

// answerError returns the error of a call without an answer. The status of an answer is left to the call's check.
func answerError(got *vegeta.Result) error {
	if got.Code == 0 {
		return fmt.Errorf("%s %s: %s", got.Method, got.URL, got.Error)
	}
	return nil
}
