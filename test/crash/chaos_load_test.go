package crash

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	// near is how close to its due time a timer is cancelled or replaced.
	near = 50 * time.Millisecond
	// far is how far ahead timers are due that outlive a round.
	far = 4 * time.Minute
	// grid has the due times of these fall together, so that between them nothing moves.
	grid = 20 * time.Second
	// sharedIDs is how many IDs are asked for again and again.
	sharedIDs = 24

	sharedID, foreignID = "shared-", "foreign-" // what IDs begin with
)

// load draws requests: a life is all that is asked for one ID, at the times when it is to be sent.
type load struct {
	r                *rand.Rand
	requests, target string
	lives, sends     int
	waiting          asks
}

// ask is a request and when it is to be sent.
type ask struct {
	at  time.Time
	n   int // those of one time keep their order
	rec *kgo.Record
}

// asks is a heap by time.
type asks []ask

func (as asks) Len() int      { return len(as) }
func (as asks) Swap(i, j int) { as[i], as[j] = as[j], as[i] }
func (as *asks) Push(a any)   { *as = append(*as, a.(ask)) }
func (as asks) Less(i, j int) bool {
	if as[i].at.Equal(as[j].at) {
		return as[i].n < as[j].n
	}
	return as[i].at.Before(as[j].at)
}
func (as *asks) Pop() any {
	a := (*as)[len(*as)-1]
	*as = (*as)[:len(*as)-1]
	return a
}

// next is the request to be sent now: one that is waiting for its time, or the first one of a new life.
func (l *load) next(int) *kgo.Record {
	now := time.Now()
	if len(l.waiting) == 0 || l.waiting[0].at.After(now) {
		l.draw(now)
	}
	return heap.Pop(&l.waiting).(ask).rec
}

// send has a request be sent at a time.
func (l *load) send(at time.Time, rec *kgo.Record) {
	l.sends++
	heap.Push(&l.waiting, ask{at, l.sends, rec})
}

// draw draws a life whose first request is sent now.
func (l *load) draw(now time.Time) {
	l.lives++
	switch n := l.r.IntN(100); {
	case n < 55:
		l.plain(now)
	case n < 70:
		l.steered(now)
	case n < 75:
		l.recurring(now)
	case n < 89:
		l.shared(now)
	case n < 92:
		l.send(now, l.poison(l.id("poison")))
	case n < 95:
		l.remembered(now)
	default:
		l.far(now)
	}
}

func (l *load) id(kind string) string { return fmt.Sprint(kind, "-", l.lives) }

func (l *load) between(d time.Duration) time.Duration {
	return time.Duration(l.r.Int64N(int64(d) + 1)).Truncate(time.Millisecond)
}

// about is a moment within near of another one, and not before now.
func (l *load) about(now, at time.Time) time.Time {
	at = at.Add(l.between(2*near) - near)
	if at.Before(now) {
		return now
	}
	return at
}

func (l *load) timer(id string, due time.Time, headers ...string) *kgo.Record {
	return with(rig.Timer(l.requests, l.target, id, due), append(headers, "kept", "as it is")...)
}

// request has nothing but headers.
func (l *load) request(id string, headers ...string) *kgo.Record {
	return with(&kgo.Record{Topic: l.requests, Key: []byte(id)}, headers...)
}

// poison must be rejected.
func (l *load) poison(id string) *kgo.Record {
	return l.request(id, waterclock.HeaderAt, "tomorrow", waterclock.HeaderTargetTopic, l.target)
}

func with(r *kgo.Record, headers ...string) *kgo.Record {
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return r
}

// plain is a timer, each third one cancelled or replaced as it falls due, and perhaps scheduled once more close behind.
func (l *load) plain(now time.Time) {
	id, due := l.id("plain"), now.Add(100*time.Millisecond+l.between(8*time.Second))
	var headers []string
	if l.r.IntN(10) == 0 {
		headers = []string{waterclock.HeaderMaxLate, "2s"}
	}
	l.send(now, l.timer(id, due, headers...))
	if l.r.IntN(3) > 0 {
		return
	}
	var condition []string // what the request does depends on whether the timer has fired
	if l.r.IntN(3) == 0 {
		condition = []string{waterclock.HeaderIf, []string{waterclock.IfAbsent, waterclock.IfPresent}[l.r.IntN(2)]}
	}
	at := l.about(now, due)
	if l.r.IntN(3) == 0 {
		l.send(at, l.timer(id, due.Add(l.between(5*time.Second)), condition...))
	} else {
		l.send(at, l.request(id, append(condition, waterclock.HeaderCancel, "true")...))
	}
	if l.r.IntN(4) == 0 {
		l.send(at.Add(l.between(near)), l.timer(id, at.Add(l.between(2*time.Second))))
	}
}

// steered is a timer that is paused or triggered as it falls due.
func (l *load) steered(now time.Time) {
	id, due := l.id("steered"), now.Add(100*time.Millisecond+l.between(4*time.Second))
	l.send(now, l.timer(id, due))
	at := l.about(now, due)
	if l.r.IntN(2) == 0 {
		l.send(at, l.request(id, waterclock.HeaderTrigger, "true"))
		return
	}
	l.send(at, l.request(id, waterclock.HeaderPause, "true"))
	l.send(at.Add(l.between(2*time.Second)), l.request(id, waterclock.HeaderResume, "true"))
}

func (l *load) recurring(now time.Time) {
	id, first := l.id("every"), now.Add(l.between(2*time.Second))
	headers := []string{
		waterclock.HeaderCount, strconv.Itoa(2 + l.r.IntN(5)),
		waterclock.HeaderCatchUp, []string{"all", "latest", "none"}[l.r.IntN(3)],
	}
	if l.r.IntN(4) == 0 {
		rec := l.timer(id, first, append(headers, waterclock.HeaderCron, "*/2 * * * * *")...)
		rec.Headers = rec.Headers[1:] // without timer-at
		l.send(now, rec)
		return
	}
	every := strconv.FormatInt((300*time.Millisecond+l.between(2*time.Second)).Milliseconds(), 10) + "ms"
	l.send(now, l.timer(id, first, append(headers, waterclock.HeaderEvery, every)...))
	if l.r.IntN(3) == 0 {
		l.send(l.about(now, first.Add(time.Second)), l.request(id))
	}
}

func (l *load) shared(now time.Time) {
	id := fmt.Sprint(sharedID, l.r.IntN(sharedIDs))
	var headers []string
	if l.r.IntN(4) == 0 {
		headers = []string{waterclock.HeaderIf, []string{waterclock.IfAbsent, waterclock.IfPresent}[l.r.IntN(2)]}
	}
	switch l.r.IntN(8) {
	case 0, 1, 2:
		l.send(now, l.timer(id, now.Add(l.between(4*time.Second)), headers...))
	case 3:
		l.send(now, l.request(id, append(headers, waterclock.HeaderPause, "true")...))
	case 4, 5:
		l.send(now, l.request(id, append(headers, waterclock.HeaderResume, "true")...))
	case 6:
		l.send(now, l.request(id, append(headers, waterclock.HeaderTrigger, "true")...))
	default:
		l.send(now, l.request(id, append(headers, waterclock.HeaderCancel, "true")...))
	}
}

// lastOfShared leave nothing pending of the shared IDs.
func (l *load) lastOfShared() (recs []*kgo.Record) {
	for i := range sharedIDs {
		recs = append(recs, l.request(fmt.Sprint(sharedID, i)))
	}
	return recs
}

// remembered is a timer whose ID stays taken, and one more that finds that, or not.
func (l *load) remembered(now time.Time) {
	id, due := l.id("remembered"), now.Add(l.between(2*time.Second))
	l.send(now, l.timer(id, due, waterclock.HeaderRemember, "5s"))
	l.send(now.Add(l.between(8*time.Second)), l.timer(id, due.Add(l.between(6*time.Second)), waterclock.HeaderIf,
		waterclock.IfAbsent))
}

// far is a timer that is due when several partitions have moved. Some are cancelled, replaced or triggered before.
func (l *load) far(now time.Time) {
	id, due := l.id("far"), now.Add(grid+l.between(far)).Truncate(grid)
	l.send(now, l.timer(id, due))
	at := now.Add(l.between(due.Sub(now)))
	switch l.r.IntN(8) {
	case 0, 1:
		l.send(at, l.request(id))
	case 2:
		l.send(at, l.timer(id, due.Add(grid)))
	case 3:
		l.send(at, l.request(id, waterclock.HeaderTrigger, "true"))
	}
}
