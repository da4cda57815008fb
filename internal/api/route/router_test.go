package route

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

var at = timer.TopicPartition{Topic: "timers", Partition: 3}

// directory returns the configured answers.
type directory func() (map[timer.TopicPartition]Owner, error)

func (d directory) Owners(context.Context) (map[timer.TopicPartition]Owner, error) { return d() }

func owns(process string) map[timer.TopicPartition]Owner {
	return map[timer.TopicPartition]Owner{at: {Process: process, API: "http://" + process}}
}

// nothing is an instance that owns nothing.
type nothing struct{ Local }

func (nothing) Owned(timer.TopicPartition) Partition { return nil }
func (nothing) Status() Instance                     { return Instance{Name: "p0"} }

// asked is a transport that answers in place of other instances.
type asked func(r *http.Request) (*http.Response, error)

func (a asked) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// overloaded is an answer of a guard.
const overloaded = `{"reason":"overloaded"}`

const unknownCaller = `{"reason":"unknown-caller","detail":"whoever"}`

func says(status int, word, body string) *http.Response {
	w := httptest.NewRecorder()
	if word != "" {
		w.Header().Set(said, word)
	}
	if body == overloaded || body == unknownCaller {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
	return w.Result()
}

func routerOf(d directory, a asked) *Router {
	return New(Options{Local: nothing{}, Directory: d, Process: "p0", Transport: a, MaxBody: 1 << 10,
		May: func(context.Context, *Call) error { return nil }})
}

// The directory is read once for all callers, and again when its content is old or was an
// error.
func TestOwnersAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int32
		var failing atomic.Bool
		o := owners{from: directory(func() (map[timer.TopicPartition]Owner, error) {
			looks.Add(1)
			time.Sleep(10 * time.Millisecond)
			if failing.Load() {
				return nil, errors.New("no coordinator")
			}
			return owns("p1"), nil
		})}
		wants := func(n int32, max time.Duration) {
			t.Helper()
			all, err := o.of(t.Context(), max)
			if err != nil || all[at].Process != "p1" || looks.Load() != n {
				t.Errorf("%v, %v after %d looks, want %d", all, err, looks.Load(), n)
			}
		}
		var askers sync.WaitGroup
		for range 20 {
			askers.Go(func() { wants(1, ownersAge) })
		}
		askers.Wait()
		time.Sleep(ownersPause)
		wants(1, ownersAge)
		wants(2, ownersPause)
		wants(2, ownersPause) // a caller that asks again at once gets the same answer
		time.Sleep(ownersAge)
		failing.Store(true)
		if _, err := o.of(t.Context(), ownersAge); !errors.Is(err, ErrMoving) {
			t.Errorf("%v of a directory that cannot be read", err)
		}
		failing.Store(false)
		wants(4, ownersAge)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		time.Sleep(ownersAge)
		if _, err := o.of(ended, ownersAge); !errors.Is(err, ErrMoving) {
			t.Errorf("%v for who has gone", err)
		}
		synctest.Wait()
		time.Sleep(time.Second) // the look that no caller waits for ends by itself
	})
}

// A former owner, or one that is not there, costs a look at the directory. The owner named
// by the next look is asked, and nobody after that.
func TestOldOwner(t *testing.T) {
	for _, c := range []struct {
		name string
		then string // owner according to the second look
		old  func() (*http.Response, error)
		want error
		hops string
	}{
		{"moved", "p2", func() (*http.Response, error) { return says(421, notOwner, ""), nil }, nil, "p1 p2"},
		{"gone", "p2", func() (*http.Response, error) {
			return nil,
				&net.OpError{Op: "dial", Err: errors.New("refused")}
		}, nil, "p1 p2"},
		{"still named", "p1", func() (*http.Response, error) { return says(421, notOwner, ""), nil },
			ErrMoving, "p1 p1"},
		{"nobody's", "p0", func() (*http.Response, error) { return says(421, notOwner, ""), nil }, ErrMoving, "p1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				looks := 0
				var hops []string
				r := routerOf(func() (map[timer.TopicPartition]Owner, error) {
					if looks++; looks == 1 {
						return owns("p1"), nil
					}
					return owns(c.then), nil
				}, func(r *http.Request) (*http.Response, error) {
					hops = append(hops, r.URL.Host)
					if r.URL.Host == "p1" {
						return c.old()
					}
					return says(200, answered, `{}`), nil
				})
				if _, err := r.owners.of(t.Context(), ownersAge); err != nil {
					t.Fatal(err)
				}
				time.Sleep(ownersPause)
				_, err := r.Ask(t.Context(), &Call{Kind: Get, Topic: at.Topic, Partition: at.Partition})
				if !errors.Is(err, c.want) || strings.Join(hops, " ") != c.hops || looks != 2 {
					t.Errorf("%v, asked %q after %d looks", err, hops, looks)
				}
			})
		})
	}
}

// If a hop ends without an answer, the outcome of a write is unknown only if it may have been written.
func TestHopsThatFail(t *testing.T) {
	var elsewhere *ElsewhereError
	var forbidden *ForbiddenError
	unknown := func(err error) bool {
		return errors.As(err, &forbidden) && forbidden.Reason == "unknown-caller" && forbidden.Detail == "whoever"
	}
	is := func(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }
	none := func(err error) bool { return err != nil && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrMoving) }
	for _, c := range []struct {
		name         string
		status       int // 0: no answer, the connection ends
		word, body   string
		read, writes func(error) bool
	}{
		{"connection", 0, "", "", is(ErrMoving), is(ErrUnknown)},
		{"half an answer", 200, answered, `{"written":`, is(ErrMoving), is(ErrUnknown)},
		{"moving", 503, moving, "gated", is(ErrMoving), is(ErrMoving)},
		{"not the owner", 421, notOwner, "", is(ErrMoving), is(ErrMoving)},
		{"forbidden", 403, "forbidden", "", func(err error) bool { return errors.As(err, &forbidden) },
			func(err error) bool { return errors.As(err, &forbidden) }},
		{"unknown to the owner", 403, "", unknownCaller, unknown, unknown},
		{"forbidden by the guard", 403, "", "", func(err error) bool { return errors.As(err, &forbidden) },
			func(err error) bool { return errors.As(err, &forbidden) }},
		{"another key", 401, "", "", func(err error) bool { return errors.As(err, &elsewhere) },
			func(err error) bool { return errors.As(err, &elsewhere) }},
		{"too large", 413, "", "", is(ErrTooLarge), is(ErrTooLarge)},
		{"no room", 503, "", overloaded, is(ErrMoving), is(ErrMoving)},
		{"proxy without an answer", 504, "", "", is(ErrMoving), is(ErrUnknown)},
		{"failed", 500, failed, "disk", none, none},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := routerOf(func() (map[timer.TopicPartition]Owner, error) { return owns("p1"), nil },
				func(*http.Request) (*http.Response, error) {
					if c.status == 0 {
						return nil, io.ErrUnexpectedEOF
					}
					return says(c.status, c.word, c.body), nil
				})
			for kind, want := range map[Kind]func(error) bool{Get: c.read, Write: c.writes} {
				if _, err := r.Ask(t.Context(), &Call{Kind: kind, Topic: at.Topic, Partition: at.Partition}); !want(
					err) {
					t.Errorf("%s: %v", kind, err)
				}
			}
		})
	}
}

// A request that its owner would not accept is not sent, so it is certainly not written.
func TestTooLargeToSend(t *testing.T) {
	r := routerOf(func() (map[timer.TopicPartition]Owner, error) { return owns("p1"), nil },
		func(*http.Request) (*http.Response, error) {
			t.Error("it was sent")
			return nil, io.EOF
		})
	_, err := r.Ask(t.Context(), &Call{Kind: Write, Topic: at.Topic, Partition: at.Partition,
		Requests: []Request{{ID: []byte("a"), Value: make([]byte, 1<<10)}}})
	if !errors.Is(err, ErrTooLarge) || errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
}

// An instance that is asked by another one answers for its own partitions, and asks no other.
func TestAskedByOthers(t *testing.T) {
	r := routerOf(func() (map[timer.TopicPartition]Owner, error) { return owns("p1"), nil },
		func(*http.Request) (*http.Response, error) {
			t.Error("it asks another one")
			return nil, io.EOF
		})
	post := func(c *Call, may error) string {
		r.o.May = func(context.Context, *Call) error { return may }
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		r.ServeHTTP(w, httptest.NewRequest(http.MethodPost, Path, strings.NewReader(string(text))))
		return fmt.Sprintf("%d %s", w.Code, w.Header().Get(said))
	}
	write := &Call{Kind: Write, Topic: at.Topic, Partition: at.Partition}
	for _, c := range []struct {
		name string
		call *Call
		may  error
		want string
	}{
		{"not owned", write, nil, "421 not-owner"},
		{"not allowed", write, errors.New("read alone"), "403 forbidden"},
		{"a read as a POST", &Call{Kind: List, Page: &query.Page{}}, nil, "400 failed"},
		{"too large", &Call{Kind: Write, ID: make([]byte, 1<<10)}, nil, "400 failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := post(c.call, c.may); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// The reason why a decision is not known is passed on unchanged.
func TestUndecided(t *testing.T) {
	for err, want := range map[error]string{
		context.DeadlineExceeded: "not decided in time",
		query.ErrForgotten:       "not remembered",
		ErrMoving:                "has moved",
	} {
		if got := undecided(fmt.Errorf("decision: %w", err)); !strings.Contains(got, want) {
			t.Errorf("%v: %s", err, got)
		}
	}
}
