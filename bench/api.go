package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/waterclock/waterclock"
	"golang.org/x/sync/errgroup"
)

// APIConfig measures the HTTP API.
type APIConfig struct {
	SteadyConfig     // lateness with and without calls at the same time; needs exactly one rate
	Puts, Gets   int // of all callers together
	Callers      int
	Pending      int // timers that are listed

	idle, lists int // numbers of PUTs, and of lists, of one caller
}

const (
	getRate, listRate = 200, 5 // calls a second during the steady rate
	longestPage       = 1000   // timers that a list may have
	verifiedSample    = 50     // timers that are read after they were put
)

// DefaultAPI returns the usual calls.
func DefaultAPI() APIConfig {
	c := APIConfig{
		SteadyConfig: DefaultSteady(), Puts: 20_000, Gets: 100_000, Callers: 64, Pending: 200_000,
		idle: 300, lists: 50,
	}
	c.Rates = []float64{10_000}
	return c
}

func (apic *APIConfig) check() error {
	return errors.Join(apic.SteadyConfig.check(), apic.checkOwn(), wantTimers(apic.Puts, apic.Gets, apic.Pending),
		between("callers", 1, 256, apic.Callers),
		between("number of rates", 1, 1, len(apic.Rates)))
}

// measure measures calls next to bare HTTP servers, and a steady rate of timers with and without calls at the same
// time.
func (apic *APIConfig) measure(ctx context.Context, r *run) error {
	rep := r.report("api", "PUTs a second / bare server that writes", "of the service for a PUT / of the bare server")
	a := &apiRun{run: r, c: apic, rep: rep}
	a.api = true
	if err := serveWarm(ctx, r); err != nil {
		return err
	}
	err := apic.rounds(func() error { return inTurn(ctx, a.puts, a.idle, a.gets) })
	if err != nil {
		return err
	}
	return inTurn(ctx, a.load, a.lists, a.beside)
}

// apiRun is a run of calls.
type apiRun struct {
	*run
	c       *APIConfig
	rep     *Report
	pending int // timers that stay pending until the end of the run
	last    string
}

// measured makes calls and adds them to the report.
func (a *apiRun) measured(ctx context.Context, t traffic) (*Calls, error) {
	c, err := drive(ctx, a.run, t)
	if err == nil {
		a.rep.Calls = append(a.rep.Calls, c)
	}
	return c, err
}

// timers returns the path of all timers.
func (a *apiRun) timers() string { return "/v1/topics/" + a.requests + "/timers" }

// timer returns the path of one timer.
func (a *apiRun) timer(id []byte) string { return a.timers() + "/" + string(id) }

// putting returns PUTs of new timers, and their batch.
func (a *apiRun) putting(name string, calls, callers int) (traffic, *batch) {
	b := a.nextBatch(0)
	header := http.Header{}
	header.Set(waterclock.HeaderAfter, "24h")
	header.Set(waterclock.HeaderTargetTopic, a.target)
	return traffic{
		name: name, addr: a.serving.api, pid: a.serving.pid(), calls: calls, callers: callers,
		check: status(http.StatusCreated),
		ask: func(i int) request {
			return request{method: http.MethodPut, path: a.timer(b.id(i)), header: header, body: b.payload(i)}
		},
	}, b
}

// getting returns GETs of timers of a batch. Each answer is verified.
func (a *apiRun) getting(name string, b *batch, number func(i int) int) traffic {
	return traffic{
		name: name, addr: a.serving.api, pid: a.serving.pid(),
		ask: func(i int) request {
			return request{method: http.MethodGet, path: a.timer(b.id(number(i)))}
		},
		check: func(got *answer) error {
			id := path.Base(got.url)
			n, err := strconv.Atoi(strings.TrimPrefix(id, b.prefix))
			return errors.Join(err, a.isTimer(got, id, b.payload(n)))
		},
	}
}

// limitOf makes the same calls to a bare server.
func (a *apiRun) limitOf(ctx context.Context, t traffic, o order, want int) (*Calls, error) {
	o.Name = a.name + "-server"
	s, err := a.bare.newLoop(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.end()
	t.addr, t.pid, t.check = s.addr, s.Pid(), status(want)
	warm := t
	warm.calls = min(t.calls, warmCalls)
	if _, err := drive(ctx, a.run, warm); err != nil {
		return nil, err
	}
	c, err := a.measured(ctx, t)
	if err == nil {
		c.Name, c.Bare = "bare "+t.name, true
	}
	return c, err
}

// warmCalls is the number of calls before the measurement.
const warmCalls = 2_000

// idle measures a single caller, which waits for each answer, next to a bare transaction for each of its calls.
func (a *apiRun) idle(ctx context.Context) error {
	t, b := a.putting("PUT, idle", a.c.idle, 1)
	bare, err := a.bareWriter(ctx, t, kindCommit)
	if err != nil {
		return err
	}
	c, err := a.put(ctx, t, b)
	if err != nil {
		return err
	}
	a.rep.ratio("p50 of an idle PUT / bare server that commits", c.Answered.P50, bare.Answered.P50)
	return nil
}

// bareWriter sends t to a bare server of this kind, which writes to a topic that is not read.
func (a *apiRun) bareWriter(ctx context.Context, t traffic, kind string) (*Calls, error) {
	topic, err := a.makeTopic(ctx, "unread")
	if err != nil {
		return nil, err
	}
	return a.limitOf(ctx, t, order{Kind: kind, In: topic, State: topic, IDs: 2, Answer: []byte("{}")}, http.StatusCreated)
}

// puts measures callers that send the next PUT when the last one is answered.
func (a *apiRun) puts(ctx context.Context) error {
	warm, _ := a.putting("warm-up", min(a.c.Puts, warmCalls), a.c.Callers)
	if _, err := drive(ctx, a.run, warm); err != nil {
		return err
	}
	a.pending += warm.calls
	t, b := a.putting("PUT", a.c.Puts, a.c.Callers)
	bare, err := a.bareWriter(ctx, t, kindProduce)
	if err != nil {
		return err
	}
	defer a.profile("put")()
	c, err := a.put(ctx, t, b)
	if err != nil {
		return err
	}
	a.rep.round(c.PerSecond, bare.PerSecond, c.CPU, bare.CPU.own())
	a.last = string(b.id(a.c.Puts - 1))
	return nil
}

// put makes the calls and checks that each has become a timer: it compares the number of timers, and reads some of
// them.
func (a *apiRun) put(ctx context.Context, t traffic, b *batch) (*Calls, error) {
	c, err := a.measured(ctx, t)
	if err != nil {
		return nil, err
	}
	if err := a.allPending(ctx, t.name, t.calls); err != nil {
		return nil, err
	}
	sample := min(t.calls, verifiedSample)
	verified := a.getting(t.name+", verified", b, func(i int) int { return i * t.calls / sample })
	verified.calls = sample
	_, err = drive(ctx, a.run, verified)
	return c, err
}

// allPending waits until that many more timers are pending. If they are not, the report gets a phase about it.
func (a *apiRun) allPending(ctx context.Context, name string, further int) error {
	a.pending += further
	p := &Phase{Name: name}
	err := a.serving.allPending(ctx, p, a.pending, pendingTimeout)
	if err != nil {
		a.rep.add(p)
	}
	return err
}

// timerJSON holds the verified parts of a timer.
type timerJSON struct {
	ID        string
	DueMillis int64
	Target    struct{ Topic string }
	Payload   struct {
		Text   string
		Base64 []byte
	}
}

func (a *apiRun) isTimer(got *answer, id string, payload []byte) error {
	var t timerJSON
	if err := json.Unmarshal(got.body, &t); got.code != http.StatusOK || err != nil {
		return fmt.Errorf("answered %d, %.300s: %w", got.code, got.body, err)
	}
	value := t.Payload.Base64
	if t.Payload.Text != "" {
		value = []byte(t.Payload.Text)
	}
	if t.ID != id || !bytes.Equal(value, payload) || t.Target.Topic != a.target {
		return fmt.Errorf("another timer than %s: %.300s", id, got.body)
	}
	return nil
}

// gets measures callers that send the next GET of one timer when the last one is answered. put has verified that timer.
func (a *apiRun) gets(ctx context.Context) error {
	q := request{method: http.MethodGet, path: a.timer([]byte(a.last))}
	code, body, err := get(ctx, "http://"+a.serving.api+q.path, callTimeout)
	if err = errors.Join(err, wantStatus(http.StatusOK, code, body)); err != nil {
		return fmt.Errorf("get a timer: %w", err)
	}
	t := traffic{
		name: "GET", addr: a.serving.api, pid: a.serving.pid(), calls: a.c.Gets, callers: a.c.Callers,
		ask: func(int) request { return q },
		check: func(got *answer) error {
			if got.code != http.StatusOK || !bytes.Equal(got.body, body) {
				return fmt.Errorf("answered %d, another timer: %.300s", got.code, got.body)
			}
			return nil
		},
	}
	bare, err := a.limitOf(ctx, t, order{Kind: kindAnswer, Answer: body}, http.StatusOK)
	if err != nil {
		return err
	}
	defer a.profile("get")()
	got, err := a.measured(ctx, t)
	if err != nil {
		return err
	}
	a.rep.ratio("GETs a second / bare server that answers the same", got.PerSecond, bare.PerSecond)
	a.rep.ratio("of the service for a GET / of the bare server", got.CPU.own(), bare.CPU.own())
	return nil
}

// pendingPrefix begins the IDs of the timers that are pending while lists are taken.
const pendingPrefix = "pending-"

// load schedules the timers that are listed.
func (a *apiRun) load(ctx context.Context) error {
	if err := a.scheduleFar(ctx, newBatch(pendingPrefix, a.ValueBytes, 0), a.c.Pending); err != nil {
		return err
	}
	return a.allPending(ctx, "load", a.c.Pending)
}

// lists measures lists in either order, one call after the other.
func (a *apiRun) lists(ctx context.Context) error {
	for _, order := range []string{"due", "id"} {
		t := a.listing(order, a.c.lists)
		warm := t
		warm.calls = 1
		if _, err := drive(ctx, a.run, warm); err != nil {
			return err
		}
		stop := a.profile("list by " + order)
		_, err := a.measured(ctx, t)
		stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// listing returns lists of one page, which must be in order, and full unless there are further pages.
func (a *apiRun) listing(order string, calls int) traffic {
	page := min(longestPage, a.c.Pending)
	return traffic{
		name: fmt.Sprintf("list of %d of %d by %s", page, a.pending, order), addr: a.serving.api, pid: a.serving.pid(),
		calls: calls, callers: 1,
		ask: func(int) request {
			return request{method: http.MethodGet, path: fmt.Sprintf("%s?order=%s&limit=%d", a.timers(), order, page)}
		},
		check: func(got *answer) error {
			var list struct {
				Timers []timerJSON
				Cursor string
			}
			if err := json.Unmarshal(got.body, &list); err != nil {
				return fmt.Errorf("answered %d, no list: %w: %.300s", got.code, err, got.body)
			}
			n := len(list.Timers)
			// A page has a limit in bytes, too.
			if got.code != http.StatusOK || n == 0 || n < page && list.Cursor == "" {
				return fmt.Errorf("answered %d, %d timers of %d: %.300s", got.code, n, page, got.body)
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

// beside measures the steady rate alone, and then with calls at the same time.
func (a *apiRun) beside(ctx context.Context) error {
	rate := a.c.Rates[0]
	without, err := a.c.paced(ctx, a.run, a.rep, rate, fmt.Sprintf("%.0f/s", rate))
	if err != nil {
		return err
	}
	const stride = 7919 // neighbours are not read one after the other
	gets := a.getting("GETs beside the steady rate", newBatch(pendingPrefix, a.ValueBytes, 0),
		func(i int) int { return i * stride % a.c.Pending })
	lists := a.listing("due", 0)
	// A list may be short because timers fire. A full check would take processor time from the service.
	lists.check = status(http.StatusOK)
	gets.rate, lists.rate = getRate, listRate

	life, cancel := context.WithCancel(ctx)
	defer cancel()
	asking, life := errgroup.WithContext(life)
	for _, t := range []traffic{gets, lists} {
		asking.Go(func() error { _, err := drive(life, a.run, t); return err })
	}
	with, err := a.c.paced(ctx, a.run, a.rep, rate, fmt.Sprintf("%.0f/s, asked", rate))
	cancel()
	if err = errors.Join(err, asking.Wait()); err != nil {
		return err
	}
	a.rep.ratio("p99 by receipt with questions beside / without", with.ByReceipt.P99, without.ByReceipt.P99)
	a.rep.ratio("p50 by receipt with questions beside / without", with.ByReceipt.P50, without.ByReceipt.P50)
	return nil
}
