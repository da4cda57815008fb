package route

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// memory counts the bytes that the calls of a router hold, up to a limit.
type memory struct {
	limit           int64
	now, most, last atomic.Int64
}

func (m *memory) Reserve(_ context.Context, n int64) error {
	m.last.Store(n)
	if m.now.Load()+n > m.limit {
		return errors.New("no room")
	}
	m.most.Store(max(m.most.Load(), m.now.Add(n)))
	return nil
}

func (m *memory) GiveBack(_ context.Context, n int64) { m.now.Add(-n) }

// An answer of another instance takes no more memory than its caller has room for. The memory is taken as
// the answer arrives, and given back later.
func TestAnswersOfHopsAreReserved(t *testing.T) {
	big := timerOf(1 << 20)
	text, err := json.Marshal(Answer{Timer: big})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		limit int64
		kind  Kind
		want  error
	}{
		{"room", 16 << 20, Get, nil},
		{"none for a read", 1 << 20, Get, ErrMoving},
		{"none for what a write tells", 1 << 20, Write, ErrUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			read := 0
			r := routerOf(func() (map[timer.TopicPartition]Owner, error) { return owns("p1"), nil },
				func(*http.Request) (*http.Response, error) {
					resp := says(200, answered, "")
					resp.Body = io.NopCloser(io.TeeReader(bytes.NewReader(text), counter{&read}))
					return resp, nil
				})
			m := &memory{limit: c.limit}
			r.o.Room = m
			a, err := r.Ask(t.Context(), &Call{Kind: c.kind, Topic: at.Topic, Partition: at.Partition})
			switch {
			case !errors.Is(err, c.want):
				t.Errorf("%v, want %v", err, c.want)
			case c.want == nil && (a.Timer == nil || m.most.Load() < 2*int64(len(text)) ||
				m.most.Load() > 6*int64(len(text))):
				t.Errorf("%v; %d held for an answer of %d bytes", a.Timer, m.most.Load(), len(text))
			case c.want != nil && read > 1<<20:
				t.Errorf("%d bytes were read without room", read)
			}
			if n := m.now.Load(); n != 0 {
				t.Errorf("%d are held for ever", n)
			}
		})
	}
}

// counter counts bytes.
type counter struct{ n *int }

func (c counter) Write(b []byte) (int, error) { *c.n += len(b); return len(b), nil }

func timerOf(size int) *query.Timer {
	return &query.Timer{Timer: &timer.Timer{ID: []byte("a"), Target: timer.Target{Topic: "orders"},
		Value: make([]byte, size)}, Topic: at.Topic, Partition: at.Partition, State: query.Pending}
}

// owning is an instance that owns a partition with one large timer, which it returns for everything.
type owning struct {
	Local
	Partition
}

func (owning) Explain(err error) error                { return err }
func (o owning) Owned(timer.TopicPartition) Partition { return o }
func (owning) Get(context.Context, []byte) (*query.Timer, error) {
	return timerOf(1 << 20), nil
}
func (o owning) Watch() (Watch, error) { return o, nil }
func (owning) Close()                  {}
func (owning) Decision(context.Context, int64) (query.Decision, error) {
	return query.Decision{Outcome: "condition-not-met", Pending: timerOf(1 << 20)}, nil
}

func (owning) Produce(_ context.Context, _ timer.TopicPartition, rs []Request) []Written {
	return make([]Written, len(rs))
}

// An owner answers another instance only if it has room for the answer. The outcome of a write is
// returned in any case, and timers of several requests go without their payloads, which are not shown
// anyway.
func TestAnswersToOthersAreReserved(t *testing.T) {
	r := routerOf(func() (map[timer.TopicPartition]Owner, error) { return nil, nil }, nil)
	r.o.Local = owning{}
	m := &memory{}
	r.o.Room = m
	ask := func(c *Call) (string, Answer) {
		c.To, c.Topic, c.Partition = "p0", at.Topic, at.Partition
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		w, req := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, Path, strings.NewReader(string(text)))
		if !c.Kind.changes() {
			req = httptest.NewRequest(http.MethodGet, Path+"?call="+base64.RawURLEncoding.EncodeToString(text), nil)
		}
		r.ServeHTTP(w, req)
		var a Answer
		if w.Code == http.StatusOK {
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
				t.Error(err)
			}
		}
		return w.Header().Get(said), a
	}
	one, two := []Request{{ID: []byte("a")}}, []Request{{ID: []byte("a")}, {ID: []byte("b")}}
	m.limit = 1 << 20
	if word, _ := ask(&Call{Kind: Get, ID: []byte("a")}); word != moving {
		t.Errorf("a read without room: %q", word)
	}
	if word, a := ask(&Call{Kind: Write, Requests: one}); word != answered || a.Written[0].Decision != nil ||
		a.Written[0].Why == "" {
		t.Errorf("a write without room: %q, %+v", word, a)
	}
	if word, a := ask(&Call{Kind: Write, Requests: two}); word != answered || a.Written[1].Decision == nil ||
		len(a.Written[1].Decision.Pending.Value) > 0 {
		t.Errorf("two writes: %q, %+v", word, a)
	}
	m.limit = 16 << 20
	if word, a := ask(&Call{Kind: Get, ID: []byte("a")}); word != answered || len(a.Timer.Value) != 1<<20 ||
		m.last.Load() < 2<<20 {
		t.Errorf("a read: %q, %d reserved", word, m.last.Load())
	}
	if word, a := ask(&Call{Kind: Write, Requests: one}); word != answered ||
		len(a.Written[0].Decision.Pending.Value) != 1<<20 {
		t.Errorf("a write: %q", word)
	}
}
