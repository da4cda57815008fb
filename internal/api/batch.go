package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer"
)

// BatchResult is the outcome of one timer of a POST.
type BatchResult struct {
	ID       string   `json:"id,omitempty" doc:"Its ID, given or made, if it is UTF-8."`
	IDBase64 []byte   `json:"idBase64,omitempty" doc:"Its ID in base64, if it is not UTF-8."`
	Status   int      `json:"status" doc:"The HTTP status that a PUT of it would get."`
	Result   *Result  `json:"result,omitempty" doc:"Its timer has no payload; if the timers of all results have more than 2 MiB, the last ones are left out."`
	Problem  *Problem `json:"problem,omitempty"`
}

// BatchResults are the results of a POST.
type BatchResults struct {
	Results []BatchResult `json:"results" nullable:"false" doc:"One for each timer, in order."`
}

// postTimers is the ID of the operation.
const postTimers = "postTimers"

// batches handles POSTs of many timers.
type batches struct{ *common }

func (b *batches) register(h huma.API) {
	op := operation("timers", http.MethodPost, "/v1/topics/{topic}/timers", postTimers, "Schedule up to 1,000 timers",
		"Each is a request of its own, and has a result of its own: the answer is 200 whatever became of them.",
		"A timer without an ID gets one. With an Idempotency-Key that is made of the key, the caller, the topic and "+
			"the timer's place in the list, and the timer counts only if none of that ID is pending, or has fired "+
			"within Idempotency-Window:",
		"so the same call made again finds what is pending, or has fired, unchanged. A key that was used with "+
			"another body is 422.")
	op.MaxBodyBytes = maxPostBytes
	describe[BatchResults](h, &op, nil)
	before(&op, func(c huma.Context) error {
		if err := isJSON(c.Header("Content-Type")); err != nil {
			return err
		}
		if err := b.topics.mayAny(c.Context(), access.Write, c.Param("topic")); err != nil {
			return err
		}
		_, err := b.topics.served(c.Param("topic"))
		return err
	})
	handle(h, op, func(ctx context.Context, in *struct {
		Topic string `path:"topic" doc:"Request topic."`
		Wait
		Key     string `header:"Idempotency-Key" maxLength:"255" doc:"Any text: the same in a repeated call."`
		Window  int64  `header:"Idempotency-Window" minimum:"0" maximum:"604800" default:"3600" doc:"How many seconds the key is valid once a timer has fired."`
		RawBody []byte `contentType:"application/octet-stream"`
	}) (*body[BatchResults], error) {
		timers, err := decodeTimers(ctx, in.RawBody)
		if err != nil {
			return nil, err
		}
		y := idempotency{key: in.Key, seconds: in.Window}
		if in.Key != "" {
			y.body = digest(timers)
		}
		results, err := b.batch(ctx, in.Topic, in.Wait.Wait, y, timers)
		return &body[BatchResults]{BatchResults{results}}, err
	})
	documentBody[NewTimers](h, h.OpenAPI().Paths[op.Path].Post, true)
}

// idempotency makes a repeated POST have the effect of one. Each timer's ID is derived from the key, and the timer is
// scheduled only if that ID is free. The log decides that: an ID is taken by a pending timer, and by a timer that has
// fired as long as it is remembered (timer.Remember). The digest of the body is kept with the timer. So the API
// stores nothing itself, and a repeated call gets the same response from another instance, or after all of them were
// restarted.
type idempotency struct {
	key     string // empty: there is none
	seconds int64  // how long a timer is remembered once it has fired
	body    string // digest of the timers
}

// The headers of a key, and of the time for which it is valid.
const keyHeader, windowHeader = "Idempotency-Key", "Idempotency-Window"

// defaultWindow is the default of windowHeader in the OpenAPI document.
const defaultWindow = "3600"

// onlyForPosts rejects a key, or its window, on calls that would ignore it. A caller who sends one relies on it, so a
// call that would nevertheless count twice must not look protected. Only a POST of timers derives IDs from its key.
// In a PUT the caller gives the ID: a repeated PUT replaces the timer by itself, and two headers keep it from
// scheduling a timer again that has fired. A key could not do that without a condition that the log does not have,
// "unless the same key has made the pending timer", because a PUT replaces any pending timer. Calls that only read
// ignore keys, because repeating them does no harm.
func onlyForPosts(c huma.Context, next func(huma.Context)) {
	op, headers := c.Operation(), headersOf(c.Context())
	wrong, given := "", func(name string) bool { return len(headers.Values(name)) > 0 }
	switch {
	case !given(keyHeader) && !given(windowHeader) || op.Method == http.MethodGet:
	case op.OperationID == postTimers && !given(keyHeader) && headers.Get(windowHeader) == defaultWindow:
		// Generated clients send defaults without being told to.
	case op.OperationID == postTimers && headers.Get(keyHeader) == "":
		wrong = "Idempotency-Key is missing or empty, and Idempotency-Window counts with a key alone: give a key, " +
			"or leave both out"
	case op.OperationID == postTimers:
	case op.Method == http.MethodPut:
		wrong = "Idempotency-Key and Idempotency-Window have no effect on a PUT, whose ID makes it idempotent: " +
			"leave them out; so that a PUT that is made again does not schedule anew what has fired, send " +
			"timer-remember: 1h and If-None-Match: *"
	default:
		wrong = "Idempotency-Key and Idempotency-Window count for a POST of timers alone: leave them out; a " +
			"condition, as If-Match, has a call count once"
	}
	if wrong == "" {
		next(c)
		return
	}
	_, w := humago.Unwrap(c)
	invalid("%s", wrong).Write(w)
}

// digest hashes the timers of a body. White space and the order of fields do not count.
func digest(timers []NewTimer) string {
	text, _ := json.Marshal(timers) // they were decoded from JSON
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// reused returns the problem of a key that was used with a different body; nil if was, the timer under
// the ID derived from the key, is from the same body.
func (i *idempotency) reused(was *timer.Remember) *Problem {
	if was == nil || was.Token == i.body {
		return nil
	}
	return problem(http.StatusUnprocessableEntity, ReasonKeyReused,
		"the Idempotency-Key %.100q was used with another body: use a new key for a new call, and the same body to "+
			"repeat a call", i.key)
}

// used looks up the first timer whose ID is derived from the key, and returns the problem if the key was used with a
// different body: then nothing is written. A concurrent call is noticed timer by timer, by writeBatch.
func (b *batches) used(ctx context.Context, y *idempotency, made []bool, requests []route.Request, name string,
	topic Topic) *Problem {
	i := slices.Index(made, true)
	if i < 0 || len(requests[i].ID) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	at := b.topics.at(name, topic, requests[i].ID)
	answer, err := b.asker.Ask(ctx,
		&route.Call{Kind: route.Get, Topic: at.Topic, Partition: at.Partition, ID: requests[i].ID})
	if err != nil || answer.Timer == nil {
		return nil // the write will return the reason
	}
	return y.reused(answer.Timer.Remember)
}

// batch writes timers. The timers of each partition keep their order.
func (b *batches) batch(ctx context.Context, name, wait string, y idempotency,
	timers []NewTimer) ([]BatchResult, error) {
	topic := b.topics.all[name] // it exists: see register
	// The caller may have a right to only some of the IDs. Then each timer is checked.
	each := b.topics.may(ctx, access.Write, name, "") != nil
	results := make([]BatchResult, len(timers))
	places := make(map[timer.TopicPartition][]int)
	requests, made := make([]route.Request, len(timers)), make([]bool, len(timers))
	for i := range timers {
		made[i] = y.key != "" && len(timers[i].ID)+len(timers[i].IDBase64) == 0
		r, err := b.batched(ctx, name, &y, i, &timers[i])
		if err == nil && each {
			err = b.topics.may(ctx, access.Write, name, string(r.ID))
		}
		at := b.topics.at(name, topic, r.ID)
		if err == nil {
			err = finish(ctx, &r, topic, at.Partition)
		}
		if results[i].ID = string(r.ID); !utf8.Valid(r.ID) {
			results[i].ID, results[i].IDBase64 = "", r.ID
		}
		if err != nil {
			results[i].fail(badRequest(err))
			continue
		}
		requests[i], places[at] = r, append(places[at], i)
	}
	if p := b.used(ctx, &y, made, requests, name, topic); p != nil {
		return nil, p
	}
	room := resultRoom{left: maxResultBytes}
	var asks errgroup.Group
	asks.SetLimit(asksAtOnce)
	for at, indices := range places {
		asks.Go(func() error { b.writeBatch(ctx, at, wait, requests, indices, &y, made, results, &room); return nil })
	}
	_ = asks.Wait() // each result has its own problem
	return results, nil
}

// writeBatch writes the requests of one partition. indices are theirs in the lists, and made marks the IDs that were
// derived from the Idempotency-Key.
func (b *batches) writeBatch(ctx context.Context, at timer.TopicPartition, wait string, requests []route.Request,
	indices []int, y *idempotency, made []bool, results []BatchResult, room *resultRoom) {
	mine := make([]route.Request, len(indices))
	for n, i := range indices {
		mine[n] = requests[i]
	}
	written, err := write(ctx, b.asker, at, wait, mine)
	for n, i := range indices {
		r := &results[i]
		if err != nil {
			r.fail(routed(err))
			continue
		}
		status, result, p := decided(at, string(mine[n].ID), &written[n])
		if p != nil && p.Reason == ReasonConditionNotMet && made[i] {
			// An earlier attempt of this call made the timer, or a different call with the same key did.
			if left := written[n].Decision.Pending; left != nil {
				if other := y.reused(left.Remember); other != nil {
					other.Request, other.Pending = p.Request, room.slim(p.Pending, &written[n])
					r.fail(other)
					continue
				}
			}
			r.Status = http.StatusOK
			r.Result = &Result{Outcome: "unchanged", Topic: at.Topic, Partition: at.Partition,
				Offset: written[n].Offset, Timer: room.slim(p.Pending, &written[n])}
			continue
		}
		if p != nil {
			p.Pending = room.slim(p.Pending, &written[n])
			r.fail(p)
			continue
		}
		result.Timer = room.slim(result.Timer, &written[n])
		r.Status, r.Result = status, result
	}
}

// maxResultBytes limits the timers in the response to a POST. Each may be as large as a record, and if a condition
// does not hold, the timer shown may be another caller's.
const maxResultBytes = 2 << 20

// resultRoom is the unused part of maxResultBytes.
type resultRoom struct {
	mu   sync.Mutex // guards left
	left int
}

// slim returns a timer for a result: without its payload, and nil if there is no room.
func (r *resultRoom) slim(t *Timer, w *route.Written) *Timer {
	if t == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left -= w.Decision.Pending.Size() - len(w.Decision.Pending.Value); r.left < 0 {
		return nil
	}
	t.Payload = nil
	return t
}

func (b *BatchResult) fail(p *Problem) { b.Status, b.Problem = p.Status, p }

// madePrefix begins the IDs that the API makes.
const madePrefix = "wc-"

// batched returns the request for one timer of a batch.
func (b *batches) batched(ctx context.Context, topic string, y *idempotency, i int,
	n *NewTimer) (route.Request, error) {
	r, err := n.request(topic)
	if err == nil {
		err = schedules(&r)
	}
	if err != nil || len(r.ID) > 0 {
		return r, err
	}
	if y.key == "" {
		r.ID = []byte(madePrefix + access.RandomID())
		return r, nil
	}
	if n.If != "" && n.If != waterclock.IfAbsent {
		return r, fmt.Errorf("if is %.80q, but a timer whose ID is derived from the Idempotency-Key is scheduled "+
			"only if none is pending: leave it out", n.If)
	}
	if n.Remember != "" {
		return r, fmt.Errorf("remember is given, but a timer whose ID is derived from the Idempotency-Key is " +
			"remembered for Idempotency-Window: leave it out")
	}
	h := sha256.New()
	for _, part := range []string{b.topics.caller(ctx), topic, y.key, fmt.Sprint(i)} {
		fmt.Fprintf(h, "%d %s\n", len(part), part)
	}
	r.ID = []byte(madePrefix + hex.EncodeToString(h.Sum(nil)[:16]))
	r.Headers.Add(waterclock.HeaderRemember, fmt.Sprintf("%ds %s", y.seconds, y.body))
	if n.If == "" {
		r.Headers.Add(waterclock.HeaderIf, waterclock.IfAbsent)
	}
	return r, nil
}
