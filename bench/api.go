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
)

// APIConfig measures PUTs over HTTP.
type APIConfig struct {
	Common
	Puts    int // of all callers together
	Callers int

	idle int // PUTs of a single caller
}

// verifiedSample is how many timers are read after they were put.
const verifiedSample = 50

// DefaultAPI returns the usual calls.
func DefaultAPI() APIConfig {
	return APIConfig{Common: DefaultCommon(), Puts: 20_000, Callers: 64, idle: 300}
}

func (apic *APIConfig) check() error {
	return errors.Join(apic.checkOwn(), wantTimers(apic.Puts), between("callers", 1, 256, apic.Callers))
}

// measure measures calls next to bare HTTP servers.
func (apic *APIConfig) measure(ctx context.Context, r *run) error {
	rep := r.report("api", "PUTs a second / bare server that writes", "of the service for a PUT / of the bare server")
	a := &apiRun{run: r, c: apic, rep: rep}
	a.api = true
	if err := serveWarm(ctx, r); err != nil {
		return err
	}
	return apic.rounds(func() error { return inTurn(ctx, a.puts, a.idle) })
}

// apiRun is a run of calls.
type apiRun struct {
	*run
	c       *APIConfig
	rep     *Report
	pending int // timers that stay pending until the end of the run
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

// bareWriter makes the same calls to a bare server of this kind, which writes to a topic that is not read.
func (a *apiRun) bareWriter(ctx context.Context, t traffic, kind string) (*Calls, error) {
	topic, err := a.makeTopic(ctx, "unread")
	if err != nil {
		return nil, err
	}
	s, err := a.bare.newLoop(ctx, order{Kind: kind, Name: a.name + "-server", In: topic, State: topic, IDs: 2,
		Answer: []byte("{}")})
	if err != nil {
		return nil, err
	}
	defer s.end()
	t.addr, t.pid = s.addr, s.Pid()
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
