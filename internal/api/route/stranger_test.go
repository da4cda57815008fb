package route_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

var at = timer.TopicPartition{Topic: "r", Partition: 3}

// owned is an instance that owns the partition, or does not. It implements route.Local, route.Partition and
// route.Watch.
type owned struct {
	owns    bool
	filter  query.Filter
	headers []timer.Header
	written int
}

func (o *owned) Owned(timer.TopicPartition) route.Partition {
	if !o.owns {
		return nil
	}
	return o
}

func (o *owned) Strays(string) []route.Partition { return nil }

func (o *owned) Produce(_ context.Context, _ timer.TopicPartition, rs []route.Request) []route.Written {
	o.written += len(rs)
	o.headers = rs[0].Headers
	return make([]route.Written, len(rs))
}

func (o *owned) Explain(err error) error                                    { return err }
func (o *owned) Status() route.Instance                                     { return route.Instance{Name: "b"} }
func (o *owned) Get(context.Context, []byte) (*query.Timer, error)          { return nil, nil }
func (o *owned) List(context.Context, query.Page) (l query.List, err error) { return l, nil }
func (o *owned) CountUntil(context.Context, query.Filter, []int64) ([]query.Count, error) {
	return nil, nil
}

func (o *owned) Count(_ context.Context, f query.Filter, _ int) (n query.Count, err error) {
	o.filter = f
	return n, nil
}
func (o *owned) Watch() (route.Watch, error) { return o, nil }
func (o *owned) Decision(context.Context, int64) (query.Decision, error) {
	return query.Decision{Outcome: "cancelled"}, nil
}
func (o *owned) Close() {}

type directory route.Owner

func (d directory) Owners(context.Context) (map[timer.TopicPartition]route.Owner, error) {
	return map[timer.TopicPartition]route.Owner{at: route.Owner(d)}, nil
}

// asker returns a router that asks whatever answers at a URL, which it takes for process b.
func asker(url string, transport http.RoundTripper) *route.Router {
	return route.New(route.Options{Local: new(owned), Directory: directory{Process: "b", API: url}, Process: "a",
		Transport: transport, MaxBody: 1 << 20})
}

func server(t *testing.T, h http.Handler) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// ask makes a call of each kind.
func ask(t *testing.T, r *route.Router) (get, write error) {
	t.Helper()
	_, get = r.Ask(t.Context(), &route.Call{Kind: route.Get, Topic: at.Topic, Partition: at.Partition, ID: []byte("x")})
	_, write = r.Ask(t.Context(), &route.Call{Kind: route.Write, Topic: at.Topic, Partition: at.Partition,
		Requests: []route.Request{{ID: []byte("x")}}, WaitMillis: 1000})
	return get, write
}

func owner(o *owned, process string) *route.Router {
	return route.New(
		route.Options{Local: o, Process: process, MaxBody: 1 << 20,
			May: func(context.Context, *route.Call) error { return nil }})
}

// An owner receives a call exactly as it was made, including bytes that are not text.
func TestBytesOnTheirWay(t *testing.T) {
	b := &owned{owns: true}
	a := asker(server(t, owner(b, "b")), http.DefaultTransport)
	f := query.Filter{DueAfter: 1, DueBefore: 2, Prefix: "\xff\x00", Target: "t", State: query.Paused,
		Labels: "a=1,b!=é"}
	if _, err := a.Ask(t.Context(), &route.Call{Kind: route.Count, Topic: at.Topic, Partition: at.Partition,
		Page: &query.Page{Filter: f}}); err != nil || b.filter != f {
		t.Errorf("asked for %+v, the owner counts %+v: %v", f, b.filter, err)
	}
	h := timer.Header{Key: "a\xff", Value: []byte{0xff}}
	_, err := a.Ask(t.Context(), &route.Call{Kind: route.Write, Topic: at.Topic, Partition: at.Partition,
		Requests: []route.Request{{ID: []byte("x"), Headers: []timer.Header{h}}}, WaitMillis: 1000})
	if err != nil || len(b.headers) != 1 || b.headers[0].Key != h.Key || string(b.headers[0].Value) != "\xff" {
		t.Errorf("the owner writes %q: %v", b.headers, err)
	}
}

// If something else has the address of an owner now, it says nothing about the owner's timers.
func TestStrangersSayNothing(t *testing.T) {
	for name, body := range map[string]string{"an object": "{}", "null": "null", "a page": "<html>",
		"an answer": `{"timers":[],"next":"","written":[{"offset":7}]}`} {
		t.Run(name, func(t *testing.T) {
			get, write := ask(
				t, asker(server(
					t, http.HandlerFunc(
						func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })),
					http.DefaultTransport))
			if !errors.Is(get, route.ErrMoving) || !errors.Is(write, route.ErrUnknown) {
				t.Errorf("get: %v; write: %v", get, write)
			}
		})
	}
	// An instance of another cluster, which has a partition of the same name.
	other := &owned{owns: true}
	get, write := ask(t, asker(server(t, owner(other, "c")), http.DefaultTransport))
	if !errors.Is(get, route.ErrMoving) || !errors.Is(write, route.ErrMoving) || other.written != 0 {
		t.Errorf("get: %v; write: %v; %d written", get, write, other.written)
	}
}

// A proxy in front of an owner may not know whether the owner got a call.
func TestErrorsOfProxies(t *testing.T) {
	for _, status := range []int{500, 502, 503, 504} {
		get, write := ask(t, asker(server(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "upstream connect error or disconnect/reset before headers", status)
		})), http.DefaultTransport))
		if !errors.Is(get, route.ErrMoving) || !errors.Is(write, route.ErrUnknown) {
			t.Errorf("%d: get: %v; write: %v", status, get, write)
		}
	}
	// The guard of an instance knows.
	get, write := ask(t, asker(server(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		(&access.Problem{Status: 503, Reason: access.ReasonOverloaded}).Write(w)
	})), http.DefaultTransport))
	if !errors.Is(get, route.ErrMoving) || !errors.Is(write, route.ErrMoving) {
		t.Errorf("get: %v; write: %v", get, write)
	}
}
