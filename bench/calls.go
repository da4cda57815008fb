package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// callTimeout limits one call over HTTP.
const callTimeout = time.Minute

// Calls are HTTP calls of one kind. Each caller makes one after the other. All responses were correct: otherwise
// there is no report.
type Calls struct {
	Name      string   `json:"name"`
	Bare      bool     `json:"bare"`
	Callers   int      `json:"callers"`
	Calls     int      `json:"calls"`
	PerSecond float64  `json:"per_second"`
	Answered  Lateness `json:"answered"` // time from a call to the end of its answer
	CPU       *CPU     `json:"cpu,omitempty"`
	// PerStep is the average number of calls that share a transaction of the service.
	PerStep float64 `json:"per_transaction,omitempty"`
}

// request is one call.
type request struct {
	method, path string
	header       http.Header
	body         []byte
}

// answered returns an error for a wrong response.
type answered func(*answer) error

// status returns a check that looks only at the status.
func status(want int) answered {
	return func(got *answer) error { return wantStatus(want, got.code, got.body) }
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
	calls   int
	ask     func(i int) request
	check   answered
}

// drive makes the calls and measures them. It ends at the first error.
func drive(ctx context.Context, r *run, t traffic) (*Calls, error) {
	calling, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	answers := make(chan answer)
	bar := r.bar(t.name, t.calls)
	m := &meter{r: r}
	m.start(t.pid)
	go func() {
		defer close(answers)
		t.call(calling, answers)
	}()
	var took []int32 // µs
	for got := range answers {
		if calling.Err() != nil {
			continue // the rest of the calls in flight
		}
		if err := errors.Join(got.err, t.check(&got)); err != nil {
			stop(err)
			continue
		}
		if took = append(took, int32(got.took.Microseconds())); len(took)%1024 == 0 {
			_ = bar.Set(len(took))
		}
	}
	m.stop()
	_ = bar.Finish()
	failed := context.Cause(calling)
	switch {
	case failed != nil && ctx.Err() == nil:
		return nil, fmt.Errorf("%s: %w", t.name, failed)
	case len(took) < t.calls:
		return nil, errors.Join(ctx.Err(), fmt.Errorf("%s: %d calls of %d", t.name, len(took), t.calls))
	}
	c := &Calls{Name: t.name, Callers: t.callers, Calls: t.calls, Answered: *latenessOf(took, 1000)}
	c.CPU, c.PerStep, _ = m.cost(t.calls)
	c.PerSecond = float64(t.calls) / m.end.at.Sub(m.begin.at).Seconds()
	return c, nil
}

// call makes the calls and passes the answers on. It returns when all are answered, or ctx ends.
func (t *traffic) call(ctx context.Context, answers chan<- answer) {
	callers := max(1, t.callers)
	transport := &http.Transport{MaxConnsPerHost: callers, MaxIdleConnsPerHost: callers}
	defer transport.CloseIdleConnections()
	client := &http.Client{Timeout: callTimeout, Transport: transport}
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= t.calls || ctx.Err() != nil {
					return
				}
				answers <- ask(ctx, client, t.addr, t.ask(i))
			}
		})
	}
	all.Wait()
}

// answer is the response to a call. Code is 0 if there was none.
type answer struct {
	url  string
	code int
	body []byte
	took time.Duration
	err  error
}

// ask makes one call.
func ask(ctx context.Context, client *http.Client, addr string, q request) answer {
	got := answer{url: "http://" + addr + q.path}
	begin := time.Now()
	req, err := http.NewRequestWithContext(ctx, q.method, got.url, bytes.NewReader(q.body))
	if err != nil {
		got.err = err
		return got
	}
	req.Header = q.header.Clone()
	resp, err := client.Do(req)
	if err != nil {
		got.err = err
		return got
	}
	defer resp.Body.Close()
	got.code = resp.StatusCode
	got.body, got.err = io.ReadAll(resp.Body)
	got.took = time.Since(begin)
	return got
}
