package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/waterclock/waterclock"
)

// APIConfig measures the HTTP API.
type APIConfig struct {
	SteadyConfig       // lateness without and with questions beside it; one rate
	Idle           int // PUTs of one caller
	Puts, Gets     int // of all callers together
	Callers        int
	Pending        int // timers that lists are taken of, and that jobs cancel some of
	Lists          int
	GetRate        float64 // questions a second beside the steady rate
	ListRate       float64
	Doomed         int // one in so many of the pending timers is cancelled by its prefix
	CancelRate     int // cancels a second of the job
	Disturb        int // timers that are scheduled, re-scheduled or fire while it runs, a second each
	ahead          time.Duration
	longestPage    int
	verifiedSample int
}

// DefaultAPI returns the usual calls.
func DefaultAPI() APIConfig {
	c := APIConfig{
		SteadyConfig: DefaultSteady(), Idle: 300, Puts: 20_000, Gets: 100_000, Callers: 64, Pending: 200_000, Lists: 50,
		GetRate: 200, ListRate: 5, Doomed: 10, CancelRate: 20_000, Disturb: 300,
		ahead: 24 * time.Hour, longestPage: 1000, verifiedSample: 50,
	}
	c.Rates = []float64{10_000}
	return c
}

func (c *APIConfig) check() error {
	return errors.Join(c.SteadyConfig.check(), wantTimers(c.Idle), wantTimers(c.Puts), wantTimers(c.Gets), wantTimers(c.Pending),
		want(c.Local, "local", c.Local, "an instance of the run's own (--local): others have callers of their own"),
		want(c.Callers >= 1 && c.Callers <= 256, "callers", c.Callers, "1 to 256, as many as an instance allows"),
		want(c.Lists >= 1 && c.Lists <= 10_000, "lists", c.Lists, "1 to 10000"),
		want(len(c.Rates) == 1, "rates", c.Rates, "one"),
		want(c.Doomed >= 2 && c.Doomed <= max(2, c.Pending/10), "doomed", c.Doomed, "2 to a tenth of --pending"),
		want(c.CancelRate >= 1 && c.CancelRate <= 50_000, "cancel-rate", c.CancelRate, "1 to 50000"),
		want(c.Disturb >= 1 && c.Disturb <= 10_000, "disturb", c.Disturb, "1 to 10000"),
		want(c.GetRate > 0 && c.ListRate > 0, "gets-beside, lists-beside", fmt.Sprint(c.GetRate, c.ListRate), "more than 0"))
}

// RunAPI measures calls next to bare HTTP servers, and the steady rate with questions next to
// the same rate without.
func RunAPI(ctx context.Context, c APIConfig) ([]*Report, error) {
	c.Requests = "" // the instance is the run's own
	if err := c.check(); err != nil {
		return nil, err
	}
	return c.workload(ctx, func(ctx context.Context, r *run) error {
		a := &apiRun{run: r, c: c, rep: r.report("api")}
		a.api = true
		a.rep.RatioIs, a.rep.CPURatioIs = "PUTs a second / bare server that writes", "of the service for a PUT / of the bare server"
		if err := r.serveWarm(ctx); err != nil {
			return err
		}
		for range c.Rounds {
			for _, measure := range []func(context.Context) error{a.idle, a.puts, a.gets} {
				if err := measure(ctx); err != nil {
					return err
				}
			}
		}
		for _, measure := range []func(context.Context) error{a.load, a.lists, a.beside, a.steer} {
			if err := measure(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// apiRun is a run of calls.
type apiRun struct {
	*run
	c       APIConfig
	rep     *Report
	pending int // timers that are, and stay so
	last    string
}

// timers is the path of all timers.
func (a *apiRun) timers() string { return "/v1/topics/" + a.requests + "/timers" }

// timer is the path of one.
func (a *apiRun) timer(id []byte) string { return a.timers() + "/" + string(id) }

// putting are PUTs of timers that nobody has put before.
func (a *apiRun) putting(name string, calls, callers int) (traffic, *ledger) {
	a.phases++
	l := newLedger(fmt.Sprintf("%s-%d-", a.name, a.phases), a.ValueBytes, 0)
	header := fmt.Sprintf("%s: 24h\r\n%s: %s\r\n", waterclock.HeaderAfter, waterclock.HeaderTargetTopic, a.target)
	return traffic{
		name: name, addr: a.serving.api, pid: a.serving.pid(), calls: calls, callers: callers, check: status(http.StatusCreated),
		ask: func(i int) request {
			return request{method: "PUT", path: a.timer(l.id(i)), header: header, body: l.payload(i)}
		},
	}, l
}

// server is a bare HTTP server.
func (a *apiRun) server(ctx context.Context, o order) (*loop, error) {
	a.phases++
	o.Name = fmt.Sprintf("%s-server-%d", a.name, a.phases)
	return a.newLoop(ctx, o)
}

// limitOf makes the same calls to a bare server.
func (a *apiRun) limitOf(ctx context.Context, t traffic, o order, want int) (*Calls, error) {
	s, err := a.server(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.end()
	t.addr, t.pid, t.check = s.addr, s.Pid(), status(want)
	warm := t
	warm.calls = min(t.calls, warmCalls)
	if _, err := a.drive(ctx, warm); err != nil {
		return nil, err
	}
	c, err := a.drive(ctx, t)
	if err != nil {
		return nil, err
	}
	c.Name, c.Bare = "bare "+t.name, true
	a.rep.Calls = append(a.rep.Calls, c)
	return c, nil
}

// warmCalls are made before those that count.
const warmCalls = 2_000

// idle is one caller who waits for each answer.
func (a *apiRun) idle(ctx context.Context) error {
	t, l := a.putting("PUT, idle", a.c.Idle, 1)
	bare, err := a.bareWriter(ctx, t)
	if err != nil {
		return err
	}
	c, err := a.put(ctx, t, l)
	if err != nil {
		return err
	}
	a.rep.ratio("p50 of an idle PUT / bare server that writes", c.Answered.P50, bare.Answered.P50)
	return nil
}

// bareWriter puts as t does to a bare server that writes to a topic that nobody reads.
func (a *apiRun) bareWriter(ctx context.Context, t traffic) (*Calls, error) {
	topic, err := a.unread(ctx)
	if err != nil {
		return nil, err
	}
	return a.limitOf(ctx, t, order{Kind: kindProduce, In: topic, Answer: []byte("{}")}, http.StatusCreated)
}

// puts are callers who put as fast as they are answered.
func (a *apiRun) puts(ctx context.Context) error {
	warm, _ := a.putting("warm-up", min(a.c.Puts, warmCalls), a.c.Callers)
	if _, err := a.drive(ctx, warm); err != nil {
		return err
	}
	a.pending += warm.calls
	t, l := a.putting("PUT", a.c.Puts, a.c.Callers)
	bare, err := a.bareWriter(ctx, t)
	if err != nil {
		return err
	}
	defer a.profile("put")()
	c, err := a.put(ctx, t, l)
	if err != nil {
		return err
	}
	a.rep.round(c.PerSecond, bare.PerSecond, c.CPU, bare.own())
	a.last = string(l.id(a.c.Puts - 1))
	return nil
}

// put makes the calls, and sees to it that all of them have become timers: as many as were put,
// and some of them looked at.
func (a *apiRun) put(ctx context.Context, t traffic, l *ledger) (*Calls, error) {
	c, err := a.drive(ctx, t)
	if err != nil {
		return nil, err
	}
	a.rep.Calls = append(a.rep.Calls, c)
	a.pending += t.calls
	p := &Phase{Name: t.name}
	if err := a.allPending(ctx, p, a.pending, pendingTimeout); err != nil {
		a.rep.Phases = append(a.rep.Phases, p)
		return nil, err
	}
	_, err = a.drive(ctx, traffic{
		name: t.name + ", verified", addr: t.addr, pid: t.pid, calls: min(t.calls, a.c.verifiedSample), callers: 1,
		ask: func(i int) request {
			return request{method: "GET", path: a.timer(l.id(i * t.calls / min(t.calls, a.c.verifiedSample)))}
		},
		check: func(i, status int, body []byte) error {
			n := i * t.calls / min(t.calls, a.c.verifiedSample)
			return a.isTimer(status, body, l.id(n), l.payload(n))
		},
	})
	return c, err
}

// timerJSON is as much of a timer as is verified.
type timerJSON struct {
	ID, Source string
	DueMillis  int64
	Target     struct{ Topic string }
	Payload    struct {
		Text   string
		Base64 []byte
	}
}

func (a *apiRun) isTimer(status int, body, id, payload []byte) error {
	var t timerJSON
	if err := json.Unmarshal(body, &t); status != http.StatusOK || err != nil {
		return fmt.Errorf("answered %d, %.300s: %w", status, body, err)
	}
	got := t.Payload.Base64
	if t.Payload.Text != "" {
		got = []byte(t.Payload.Text)
	}
	if t.ID != string(id) || !bytes.Equal(got, payload) || t.Target.Topic != a.target {
		return fmt.Errorf("another timer than %s: %.300s", id, body)
	}
	return nil
}

// gets are callers who ask for one of the timers as fast as they are answered. It has been
// verified that it is the one.
func (a *apiRun) gets(ctx context.Context) error {
	c, err := newCaller(ctx, a.serving.api)
	if err != nil {
		return err
	}
	defer c.close()
	q := request{method: "GET", path: a.timer([]byte(a.last))}
	code, body, err := c.do(&q)
	if err != nil || code != http.StatusOK {
		return fmt.Errorf("get a timer: %d: %w", code, err)
	}
	body = bytes.Clone(body)
	t := traffic{
		name: "GET", addr: a.serving.api, pid: a.serving.pid(), calls: a.c.Gets, callers: a.c.Callers,
		ask: func(int) request { return q },
		check: func(_, status int, got []byte) error {
			if status != http.StatusOK || !bytes.Equal(got, body) {
				return fmt.Errorf("answered %d, another timer: %.300s", status, got)
			}
			return nil
		},
	}
	bare, err := a.limitOf(ctx, t, order{Kind: kindAnswer, Answer: body}, http.StatusOK)
	if err != nil {
		return err
	}
	defer a.profile("get")()
	got, err := a.drive(ctx, t)
	if err != nil {
		return err
	}
	a.rep.Calls = append(a.rep.Calls, got)
	a.rep.ratio("GETs a second / bare server that answers the same", got.PerSecond, bare.PerSecond)
	a.rep.ratio("of the service for a GET / of the bare server", got.own(), bare.own())
	return nil
}

// The IDs of the timers that are pending while lists are taken.
const (
	keptPrefix = "kept-"
	gonePrefix = "gone-"
)

// load schedules the timers that lists are taken of.
func (a *apiRun) load(ctx context.Context) error {
	random := rand.New(rand.NewPCG(5, 6))
	gone := a.c.Pending / a.c.Doomed
	for prefix, n := range map[string]int{gonePrefix: gone, keptPrefix: a.c.Pending - gone} {
		l := newLedger(prefix, a.ValueBytes, 0)
		err := a.schedule(ctx, l, offer{timers: n, unbooked: true, due: func(_ int, now time.Time) int64 {
			return now.Add(a.c.ahead).UnixMilli() + random.Int64N(a.c.ahead.Milliseconds())
		}})
		if err != nil {
			return err
		}
	}
	a.pending += a.c.Pending
	if err := a.awaitSettled(ctx); err != nil {
		return err
	}
	p := &Phase{Name: "load"}
	if err := a.allPending(ctx, p, a.pending, pendingTimeout); err != nil {
		a.rep.Phases = append(a.rep.Phases, p)
		return err
	}
	return nil
}

// lists takes pages, the first ones and others, one after the other.
func (a *apiRun) lists(ctx context.Context) error {
	for _, order := range []string{"due", "id"} {
		t := a.listing(order, a.c.Lists)
		warm := t
		warm.calls = 1
		if _, err := a.drive(ctx, warm); err != nil {
			return err
		}
		stop := a.profile("list by " + order)
		c, err := a.drive(ctx, t)
		stop()
		if err != nil {
			return err
		}
		a.rep.Calls = append(a.rep.Calls, c)
	}
	return nil
}

// listing is a list of as many as a page has, which must be full and in order.
func (a *apiRun) listing(order string, calls int) traffic {
	page := min(a.c.longestPage, a.c.Pending)
	return traffic{
		name: fmt.Sprintf("list of %d of %d by %s", page, a.pending, order), addr: a.serving.api, pid: a.serving.pid(), calls: calls, callers: 1,
		ask: func(int) request {
			return request{method: "GET", path: fmt.Sprintf("%s?order=%s&limit=%d", a.timers(), order, page)}
		},
		check: func(_, status int, body []byte) error {
			var list struct{ Timers []timerJSON }
			if err := json.Unmarshal(body, &list); status != http.StatusOK || err != nil || len(list.Timers) != page {
				return fmt.Errorf("answered %d, %d timers of %d: %w", status, len(list.Timers), page, err)
			}
			for i := range list.Timers[1:] {
				x, y := list.Timers[i], list.Timers[i+1]
				if order == "due" && x.DueMillis > y.DueMillis || order == "id" && x.ID >= y.ID {
					return fmt.Errorf("%s is listed before %s", x.ID, y.ID)
				}
			}
			return nil
		},
	}
}
