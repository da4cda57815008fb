package route

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// Path is the path at which an instance answers others.
	Path = "/internal/v1/ask"
	// maxAnswer limits the response of another instance, in bytes. A caller may have room for less.
	maxAnswer = 256 << 20
	// answerFactor is the number of copies of a response in memory of an instance: encoded, and decoded.
	answerFactor = 2
	// answerStep is the minimum number of bytes for which room is taken at a time.
	answerStep = 4 << 10
	// maxText limits the quoted text of a response in an error, in bytes.
	maxText = 2000
	// hopTimeout bounds a call that does not write.
	hopTimeout = 5 * time.Second
)

// Options of a Router.
type Options struct {
	Local     Local
	Directory Directory
	Process   string // ID of this process
	// Transport makes calls to others, in the name of the caller in the context; nil: none are made.
	Transport http.RoundTripper
	// May returns the reason why a call of another instance may not be answered, or nil if it may. It must reject
	// every call that no instance has signed, and must not be nil.
	May func(ctx context.Context, c *Call) error
	// Room counts the memory of answers that travel between instances; nil: it is not counted.
	Room Room
	// SettingsOf returns the settings in which a process differs from most instances; nil: that is not known.
	SettingsOf func(process string) []string
	// MaxBody limits a call between instances, in bytes: a larger one is not sent, and not read if another instance
	// sends it.
	MaxBody int64
}

// Room counts bytes that the call of a context holds. Reserve may wait a moment for room; its error means that there
// is none.
type Room interface {
	Reserve(ctx context.Context, n int64) error
	GiveBack(ctx context.Context, n int64)
}

// unlimited is Room without a limit.
type unlimited struct{}

func (unlimited) Reserve(context.Context, int64) error { return nil }
func (unlimited) GiveBack(context.Context, int64)      {}

// Router asks the owner of a partition. It is safe for concurrent use.
type Router struct {
	o      Options
	owners owners
	clean  clean
	client *http.Client // nil: other instances are not asked
	jobs   JobHolder    // see HaveJobs
}

// New returns a router.
func New(o Options) *Router {
	if o.Room == nil {
		o.Room = unlimited{}
	}
	if o.SettingsOf == nil {
		o.SettingsOf = func(string) []string { return nil }
	}
	r := &Router{o: o, owners: owners{from: o.Directory}}
	if o.Transport != nil {
		r.client = &http.Client{
			Transport:     o.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return r
}

var (
	// errNotOwner means that the asked instance does not own the partition, or is not there: nothing was written.
	errNotOwner = errors.New("does not answer for the partition")
	// errStranger means that the asked instance does not know this one.
	errStranger = errors.New("--api-key-file must hold the same key on all instances, --advertise of each be its " +
		"own, and their clocks be set")
)

// ForbiddenError means that the owner does not allow a call that this instance allows.
type ForbiddenError struct {
	Detail string
	Reason string // of the owner's guard, which rejected the call; empty: the guard let it in
}

func (f *ForbiddenError) Error() string { return f.Detail }

// Ask asks the owner of a partition, in the name of the caller in the context. If the call itself is right,
// errors wrap ErrMoving or ErrUnknown, or are a StuckError or an ElsewhereError.
func (r *Router) Ask(ctx context.Context, c *Call) (Answer, error) {
	if p := r.o.Local.Owned(c.at()); p != nil {
		return answer(ctx, r.o.Local, p, c)
	}
	a, err := r.askOwner(ctx, c, ownersAge)
	if errors.Is(err, errNotOwner) {
		// The cached owner is old, or the owner is gone. Nothing was written.
		if a, err = r.askOwner(ctx, c, ownersPause); errors.Is(err, errNotOwner) {
			err = fmt.Errorf("%w: %w", ErrMoving, err)
		}
	}
	return a, err
}

// askOwner asks the owner according to a directory that is at most as old as known.
func (r *Router) askOwner(ctx context.Context, c *Call, known time.Duration) (Answer, error) {
	all, err := r.owners.of(ctx, known)
	if err != nil {
		return Answer{}, err
	}
	owner, some := all[c.at()]
	if !some || owner.Process == r.o.Process {
		// It never had an owner, or this process was the last owner and no longer is.
		return Answer{}, fmt.Errorf("%w: no instance owns partition %d of %s", ErrMoving, c.Partition, c.Topic)
	}
	return r.hopTo(ctx, owner, c)
}

// hopTo asks another instance, or explains why it cannot be asked.
func (r *Router) hopTo(ctx context.Context, owner Owner, c *Call) (Answer, error) {
	elsewhere := &ElsewhereError{Topic: c.Topic, Partition: c.Partition, Process: owner.Process, API: owner.API}
	switch {
	case owner.API == "":
		elsewhere.Why = "start it with --api (and a version that has it)"
		return Answer{}, elsewhere
	case r.client == nil:
		elsewhere.Why = "calls are forwarded to it if --api-key-file names the same key on all instances; without, " +
			"ask it there"
		return Answer{}, elsewhere
	}
	a, err := r.hop(ctx, owner, c)
	if errors.Is(err, errStranger) {
		elsewhere.Why = "it does not take this instance's calls: " + err.Error()
		return Answer{}, elsewhere
	}
	return a, err
}

// hop asks another instance.
func (r *Router) hop(ctx context.Context, owner Owner, c *Call) (a Answer, err error) {
	to, addressed := owner.API, *c
	addressed.To = owner.Process
	call, err := json.Marshal(&addressed)
	if err != nil {
		return a, fmt.Errorf("encode a call: %w", err)
	}
	if int64(len(call)) > r.o.MaxBody {
		return a, fmt.Errorf("%w: as a call to %s, which owns the partition, it has %d bytes, and api-body-limit is "+
			"%d: it must be 1.5 times as large as the largest request",
			ErrTooLarge, to, len(call), r.o.MaxBody)
	}
	timeout, method, at, body := hopTimeout, http.MethodGet,
		to+Path+"?call="+base64.RawURLEncoding.EncodeToString(call), io.Reader(nil)
	if c.Kind.changes() {
		timeout += time.Duration(c.WaitMillis) * time.Millisecond
		method, at, body = http.MethodPost, to+Path, bytes.NewReader(call)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, at, body)
	if err != nil {
		return a, fmt.Errorf("ask %s: %w", to, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return a, broken(to, c.Kind, err)
	}
	defer resp.Body.Close()
	data, release, err := r.take(ctx, to, c.Kind, resp.Body)
	defer release()
	if err != nil {
		return a, err
	}
	return read(to, c.Kind, resp, data)
}

// take reads a response, taking room for it as it arrives. release releases the room, which is for the bytes and for
// decoding them; callers count the results themselves, as they do with an answer of this process.
func (r *Router) take(ctx context.Context, to string, k Kind, body io.Reader) (data []byte, release func(), err error) {
	var room int64
	release = func() { r.o.Room.GiveBack(ctx, room) }
	for {
		if len(data) == cap(data) {
			more := max(int64(cap(data)), answerStep)
			if int64(cap(data))+more > maxAnswer {
				return nil, release, fmt.Errorf("%w: the response of %s has more than %d MiB", lost(k), to,
					maxAnswer>>20)
			}
			if err := r.o.Room.Reserve(ctx, answerFactor*more); err != nil {
				return nil, release, fmt.Errorf("%w: there is no room for the response of %s: %w", lost(k), to, err)
			}
			room += answerFactor * more
			data = append(make([]byte, 0, int64(cap(data))+more), data...)
		}
		n, err := body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, io.EOF) {
			return data, release, nil
		}
		if err != nil {
			return nil, release, broken(to, k, err)
		}
	}
}

// broken distinguishes a call that was not sent from one that may have been.
func broken(to string, k Kind, err error) error {
	if parts, ok := errors.AsType[*url.Error](err); ok {
		err = parts.Err // without the URL, which is in the text already
	}
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return fmt.Errorf("%s %w: %w", to, errNotOwner, err)
	}
	return fmt.Errorf("%w: %s was asked and has not answered: %w", lost(k), to, err)
}

// lost returns the error for a call that may or may not have reached its owner.
func lost(k Kind) error {
	if k == Write {
		return ErrUnknown
	}
	return ErrMoving
}

// Responses between Routers: said is a header with one of these words. A response without that header comes from
// something else. It may be the guard before the router, whose problems are known by their media type: then the call
// has not reached the router. It may be a proxy, which may have lost the call on the way there or back. Or something
// that is not an instance has the address by now. Such a response proves nothing about timers.
const (
	said      = "Waterclock-Answer"
	answered  = "answer"
	notOwner  = "not-owner"
	moving    = "moving"
	forbidden = "forbidden"
	failed    = "failed"
)

// read interprets a response.
func read(to string, k Kind, resp *http.Response, data []byte) (a Answer, err error) {
	text := strings.TrimSpace(string(data[:min(len(data), maxText)]))
	guarded := resp.Header.Get("Content-Type") == "application/problem+json"
	var p struct{ Reason, Detail string }
	if guarded && json.Unmarshal(data, &p) == nil && p.Detail != "" {
		text = p.Detail[:min(len(p.Detail), maxText)] // the rest of the text is about this hop
	}
	switch word := resp.Header.Get(said); {
	case word == answered && resp.StatusCode == http.StatusOK:
		if err := json.Unmarshal(data, &a); err != nil {
			return Answer{}, fmt.Errorf("%w: cannot read the response of %s: %w", lost(k), to, err)
		}
		return a, nil
	case resp.StatusCode < 300, word == "" && !guarded && resp.StatusCode >= 500:
		return a, fmt.Errorf("%w: the response of %s is not that of an instance, status %d: %s", lost(k), to,
			resp.StatusCode, text)
	case word == notOwner:
		return a, fmt.Errorf("%s %w", to, errNotOwner)
	case word == PartitionFailed, word == KafkaUnreachable:
		return a, &StuckError{word, text}
	case word == moving:
		return a, fmt.Errorf("%w: %s", ErrMoving, text)
	case word == forbidden:
		return a, &ForbiddenError{Detail: text}
	case word == "" && resp.StatusCode == http.StatusForbidden:
		return a, &ForbiddenError{Detail: text, Reason: p.Reason}
	case word == "" && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusMisdirectedRequest):
		return a, fmt.Errorf("%w (%s)", errStranger, text)
	case word == "" && resp.StatusCode == http.StatusRequestEntityTooLarge:
		return a, fmt.Errorf("%w by %s, whose api-body-limit must be 1.5 times as large as the largest request: %s",
			ErrTooLarge, to, text)
	case word == "" && (resp.StatusCode == http.StatusServiceUnavailable ||
		resp.StatusCode == http.StatusTooManyRequests):
		return a, fmt.Errorf("%w: %s has no room for calls: %s", ErrMoving, to, text)
	case word == "" && resp.StatusCode > http.StatusInternalServerError: // a proxy that has lost it
		return a, fmt.Errorf("%w: %s responded with %d: %s", lost(k), to, resp.StatusCode, text)
	}
	return a, fmt.Errorf("%s responded with %d: %s", to, resp.StatusCode, text)
}

// Produce writes requests to a partition from here, whichever instance owns it.
func (r *Router) Produce(ctx context.Context, at timer.TopicPartition, requests []Request) []Written {
	return r.o.Local.Produce(ctx, at, requests)
}

const (
	// ownersAge limits the age of the known owners. If an instance turns out not to be the owner, they are read
	// again, but not within ownersPause.
	ownersAge   = time.Second
	ownersPause = 100 * time.Millisecond
	// ownersTimeout bounds one read of the directory.
	ownersTimeout = 3 * time.Second
)

// Owner is the process that has committed the last offset of a partition.
type Owner struct {
	Process string // ID of its process
	API     string // address of its API, as a URL; empty: it has none
}

// Directory reads the owners of the partitions of the group.
type Directory interface {
	Owners(ctx context.Context) (map[timer.TopicPartition]Owner, error)
}

// owners caches the directory.
type owners struct {
	from   Directory
	flight singleflight.Group // callers that find the cache too old share one read

	mu  sync.Mutex // guards the fields below
	at  time.Time  // when the last read began; zero: it has failed
	all map[timer.TopicPartition]Owner
}

// of returns the owners of at most max ago.
func (o *owners) of(ctx context.Context, max time.Duration) (map[timer.TopicPartition]Owner, error) {
	o.mu.Lock()
	at, all := o.at, o.all
	o.mu.Unlock()
	if time.Since(at) < max {
		return all, nil
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: its owner cannot be read: %w", ErrMoving, ctx.Err())
	case read := <-o.flight.DoChan("", o.read):
		if read.Err != nil {
			return nil, fmt.Errorf("%w: its owner cannot be read: %w", ErrMoving, read.Err)
		}
		return read.Val.(map[timer.TopicPartition]Owner), nil
	}
}

// read reads the directory. It does not end with its caller, but after ownersTimeout.
func (o *owners) read() (any, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), ownersTimeout)
	defer cancel()
	all, err := o.from.Owners(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.at, o.all = began, all; err != nil {
		o.at = time.Time{}
	}
	return all, err
}
