package bench

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// All that the workload measures of the API, in small, against a real instance.
func TestAPI(t *testing.T) {
	t.Parallel()
	c := DefaultAPI()
	c.Common, c.Idle, c.Puts, c.Gets, c.Callers, c.Pending, c.Lists = common(t), 3, 60, 60, 4, 500, 2
	c.Rates, c.Duration, c.Least, c.Spread, c.Disturb, c.CancelRate = []float64{100}, time.Second, 200*time.Millisecond, 200*time.Millisecond, 50, 1000
	reports, err := RunAPI(t.Context(), c)
	rep := one(t, reports, err)
	for i, name := range []string{"bare PUT, idle", "PUT, idle", "bare PUT", "PUT", "bare GET", "GET", "list of 500 of 623 by due", "list of 500 of 623 by id"} {
		if len(rep.Calls) <= i {
			t.Fatalf("%d kinds of calls", len(rep.Calls))
		}
		got := rep.Calls[i]
		if got.Name != name || got.Bare != strings.HasPrefix(name, "bare") || got.PerSecond <= 0 || got.Answered.P50 <= 0 || got.Answered.Max < got.Answered.P99 || got.CPU == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	steered := phaseOf(t, rep, "cancel by prefix, of 500")
	// Some of the 50 that were there before: others are scheduled again beside the job, or fire.
	if e := steered.Exact; e.Cancelled == 0 || e.Scheduled < 500 || e.wrong() != 0 || steered.Note == "" {
		t.Errorf("%+v", steered)
	}
	phaseOf(t, rep, "100/s")
	phaseOf(t, rep, "100/s, asked")
	if len(rep.Ratios) < 4 || rep.Ratio <= 0 {
		t.Errorf("%+v", rep)
	}
	var out bytes.Buffer
	rep.WriteTable(&out)
	if !strings.Contains(out.String(), "callers") || !strings.Contains(out.String(), "the job came to") {
		t.Errorf("table:\n%s", &out)
	}
}

// What has become of timers is worked out from the log, and each thing that can be wrong shows.
func TestFates(t *testing.T) {
	const gone, soon = gonePrefix + "1", soonPrefix + "1"
	far := time.Now().Add(time.Hour).UnixMilli()
	type timers = map[string]string
	for _, c := range []struct {
		name            string
		log             []logged
		fired           map[string]int
		left            timers
		want            Exactness
		changed, spared int // cancels
	}{
		{"cancelled", []logged{{gone, "t/0/1", far, ""}, {gone, "t/0/2", 0, "t/0/1"}}, nil, nil, Exactness{Cancelled: 1}, 1, 0},
		{"not cancelled", []logged{{gone, "t/0/1", far, ""}}, nil, timers{gone: "t/0/1"}, Exactness{Uncancelled: 1}, 0, 0},
		{"cancelled, and there", []logged{{gone, "t/0/1", far, ""}, {gone, "t/0/2", 0, "t/0/1"}}, nil, timers{gone: "t/0/1"}, Exactness{Cancelled: 1, Uncancelled: 1}, 1, 0},
		{"re-scheduled before", []logged{{gone, "t/0/1", far, ""}, {gone, "t/0/2", far, ""}, {gone, "t/0/3", 0, "t/0/1"}}, nil, timers{gone: "t/0/2"}, Exactness{}, 0, 1},
		{"re-scheduled before, and not spared", []logged{{gone, "t/0/1", far, ""}, {gone, "t/0/2", far, ""}, {gone, "t/0/3", 0, "t/0/1"}}, nil, nil, Exactness{Lost: 1}, 0, 1},
		{"re-scheduled behind", []logged{{gone, "t/0/1", far, ""}, {gone, "t/0/2", 0, "t/0/1"}, {gone, "t/0/3", far, ""}}, nil, timers{gone: "t/0/3"}, Exactness{}, 1, 0},
		{"another version is there", []logged{{gone, "t/0/1", far, ""}, {gone, "t/0/2", far, ""}}, nil, timers{gone: "t/0/1"}, Exactness{Altered: 1}, 0, 0},
		{"fired before its cancel", []logged{{soon, "t/0/1", 1, ""}, {soon, "t/0/2", 0, "t/0/1"}}, map[string]int{"t/0/1": 1}, nil, Exactness{Received: 1}, 0, 1},
		{"fired twice", []logged{{soon, "t/0/1", 1, ""}}, map[string]int{"t/0/1": 2}, nil, Exactness{Received: 1, Duplicated: 1}, 0, 0},
		{"not fired", []logged{{soon, "t/0/1", 1, ""}}, nil, nil, Exactness{Lost: 1}, 0, 0},
		{"fired what was replaced", []logged{{gone, "t/0/1", far, ""}, {gone, "t/0/2", far, ""}}, map[string]int{"t/0/1": 1}, timers{gone: "t/0/2"}, Exactness{Uncancelled: 1}, 0, 0},
		{"nobody has scheduled it", nil, nil, timers{gone: "t/0/1"}, Exactness{Altered: 1}, 0, 0},
	} {
		f := &fates{log: c.log, timers: make(map[string]*fate), fired: c.fired}
		f.fold()
		got := f.exactness(c.left, time.Now())
		got.Scheduled = 0
		if got != c.want || f.spared != c.spared || f.changed != c.changed {
			t.Errorf("%s: %+v, want %+v; %d changed, %d spared", c.name, got, c.want, f.changed, f.spared)
		}
	}
}

// A caller reads what servers write: of a known length, in chunks, long or empty.
func TestCaller(t *testing.T) {
	long := strings.Repeat("0123456789", 10_000)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch r.URL.Path {
		case "/long":
			_, _ = io.WriteString(w, long)
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		default:
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, "%s %s %s", r.Method, r.Header.Get("x"), body)
		}
	}))
	defer s.Close()
	c, err := newCaller(t.Context(), strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	for range 2 {
		for _, x := range []struct {
			q      request
			status int
			want   string
		}{
			{request{"PUT", "/a", "x: y\r\n", []byte("body")}, 201, "PUT y body"},
			{request{"GET", "/long", "", nil}, 200, long},
			{request{"GET", "/none", "", nil}, 204, ""},
		} {
			status, body, err := c.do(&x.q)
			if err != nil || status != x.status || string(body) != x.want {
				t.Errorf("%s %s: %d, %.20q, %v", x.q.method, x.q.path, status, body, err)
			}
		}
	}
}

// An answer that is not what it must be ends the workload.
func TestDriveFails(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	c := DefaultCommon()
	_, err := (&run{Common: &c}).drive(t.Context(), traffic{
		name: "GET", addr: strings.TrimPrefix(s.URL, "http://"), callers: 2, calls: 10, check: status(http.StatusOK),
		ask: func(int) request { return request{method: "GET", path: "/"} },
	})
	if err == nil || !strings.Contains(err.Error(), "GET: answered 404, not 200") {
		t.Error(err)
	}
}
