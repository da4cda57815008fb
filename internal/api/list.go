package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kit/suggest"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

const (
	// asksAtOnce is the number of partitions that one call asks concurrently.
	asksAtOnce = 16
	// leastShare is the minimum number of timers that a partition is asked for.
	leastShare = 16
	// shareSpread is how many standard deviations above the mean a partition is asked for.
	shareSpread = 4
	// fullPageTime limits how long a call goes on filling a page that is not full.
	fullPageTime = time.Second
	// pageBytes limits the timers of a page, without payloads and as they are in memory. A single larger timer is
	// a page of its own.
	pageBytes = 256 << 10
	// leastPageBytes is the minimum number of bytes that a partition is asked for.
	leastPageBytes = 16 << 10
	// pageFactor is the number of copies of a page in memory: as timers, as texts, and as JSON, which may write one
	// byte as several.
	pageFactor = 4
)

// Filter has the parameters that choose timers.
type Filter struct {
	DueAfter  string   `query:"due-after" doc:"Due then or later: RFC 3339 with a zone, or Unix milliseconds."`
	DueBefore string   `query:"due-before" doc:"Due before then."`
	Prefix    string   `query:"prefix" maxLength:"512" doc:"Only IDs that begin with it."`
	Target    string   `query:"target" maxLength:"249" doc:"Only timers that fire to this topic."`
	State     string   `query:"state" enum:"pending,triggered,paused,parked,deferred,recurring,remembered" doc:"Their state; recurring: in any state, but recurring. If absent, all except remembered ones, which are no longer pending."`
	Label     []string `query:"label,explode" maxItems:"16" doc:"Only with these labels: NAME=VALUE, NAME!=VALUE (or no such label) or NAME. It may be repeated; all must hold."`
}

// selector parses the parameter label.
func selector(texts []string) (timer.Selector, error) {
	s, fault := timer.ParseSelector(texts)
	if fault != "" {
		return s, invalid("label: %s", fault)
	}
	return s, nil
}

func (f *Filter) query() (q query.Filter, err error) {
	q = query.Filter{Prefix: f.Prefix, Target: f.Target, State: query.State(f.State)}
	if len(q.Prefix) > waterclock.MaxIDBytes { // it might not fit into the URL of a hop
		return q, invalid("prefix has %d bytes, and an ID %d at most", len(q.Prefix), waterclock.MaxIDBytes)
	}
	if q.Labels, err = selector(f.Label); err != nil {
		return q, err
	}
	if q.DueAfter, err = instant("due-after", f.DueAfter); err != nil {
		return q, err
	}
	q.DueBefore, err = instant("due-before", f.DueBefore)
	if err == nil && f.DueBefore != "" && q.DueBefore == 0 { // 0 would mean any time
		err = invalid("due-before is %.60q, before which nothing is due: leave it out for all timers", f.DueBefore)
	}
	return q, err
}

// instant parses a time to Unix milliseconds; 0 means none. As in timer-at, it rejects times that cannot be meant: a
// bound that is 0, or in seconds, would select timers that the caller did not mean.
func instant(name, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return 0, invalid("%s is %.60q, needs RFC 3339 with a zone, as in 2026-11-22T09:00:00Z, or Unix "+
				"milliseconds", name, text)
		}
		ms = t.UnixMilli()
	}
	switch meant, unit := suggest.Millis(ms); {
	case ms < waterclock.MinUnixMilli:
		return 0, invalid("%s is %.60q, needs at least %d: send milliseconds, not seconds", name, text,
			waterclock.MinUnixMilli)
	case unit != "":
		return 0, invalid("%s is %.60q, which is a time of today in %s: send milliseconds, %d", name, text, unit, meant)
	}
	return ms, nil
}

// TimerList is a page of timers.
type TimerList struct {
	Timers []*Timer `json:"timers" nullable:"false" doc:"In the requested order, without payloads. There may be fewer than the limit, even none, although there is a next page."`
	Cursor string   `json:"cursor,omitempty" doc:"Cursor of the next page; absent if there is none. It stays valid indefinitely, even if partitions move."`
	// Missing is a reason to start the list again.
	Missing []Missing `json:"missing,omitempty" doc:"Partitions whose timers are missing from this page, because they could not be asked. Absent if there are none. If all are missing, the call fails."`
}

// Missing is a partition that is missing from a response.
type Missing struct {
	Partition int32  `json:"partition"`
	Reason    string `json:"reason" doc:"The reason, as in a problem: elsewhere, moving, partition-failed or kafka-unreachable."`
	Detail    string `json:"detail" doc:"The owner, the reason why it could not be asked, and a remedy."`
	Owner     string `json:"owner,omitempty" doc:"With elsewhere: the address of the instance to ask, if it has an API."`

	err error
}

// TimerCount is a number of timers.
type TimerCount struct {
	Count int64 `json:"count"`
	Exact bool  `json:"exact" doc:"false: there are more; the count would have examined too many, or partitions are missing."`
	// Until answers the parameter until.
	Until   []CountUntil `json:"until,omitempty" doc:"For each instant of until, in order; each has the count of the last."`
	Missing []Missing    `json:"missing,omitempty" doc:"Partitions that are not counted, because they could not be asked. Absent if there are none. If all are missing, the call fails."`
}

// CountUntil is the number of timers that fire before an instant.
type CountUntil struct {
	At    time.Time `json:"at"`
	Count int64     `json:"count" doc:"Timers that are due before it, or triggered, and not paused."`
	Exact bool      `json:"exact"`
}

// maxUntil is the maximum number of instants in one count.
const maxUntil = 100

// lists has the operations on the pending timers of a request topic.
type lists struct{ *common }

func (l *lists) register(h huma.API) {
	list := operation("timers", http.MethodGet, "/v1/topics/{topic}/timers", "listTimers", "List pending timers",
		"Each partition answers from a committed state of its own. What is scheduled, fires, recurs or is steered "+
			"between two pages is in one of them, in both or in neither.")
	reads(h, list, func(ctx context.Context, in *struct {
		Topic string `path:"topic" doc:"Request topic."`
		Filter
		Order  string `query:"order" enum:"due,id" default:"due" doc:"due: in the order of firing, paused ones last. id: by the bytes of the ID."`
		Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The maximum number."`
		Cursor string `query:"cursor" doc:"cursor of the previous page, with the same filter and order."`
	}) (TimerList, error) {
		return l.list(ctx, in.Topic, &in.Filter, query.Order(in.Order), in.Limit, in.Cursor)
	})
	count := operation("timers", http.MethodGet, "/v1/topics/{topic}/timers/count", "countTimers",
		"Count pending timers",
		"With until: how many fire before each of some instants, for the price of one look at those that fire "+
			"before the last.")
	reads(h, count, func(ctx context.Context, in *struct {
		Topic string `path:"topic" doc:"Request topic."`
		Filter
		Limit int      `query:"limit" minimum:"1" doc:"The most timers of each partition to examine: a smaller number makes the call cheaper, and the count may not be exact. If absent, a million."`
		Until []string `query:"until" maxItems:"100" doc:"Instants, ascending, with commas between them: RFC 3339 with a zone, or Unix milliseconds. Paused timers do not count."`
	}) (n TimerCount, err error) {
		f, err := in.query()
		if err != nil {
			return n, err
		}
		until, err := instants(in.Until)
		if err != nil {
			return n, err
		}
		topic, err := l.topics.topic(ctx, access.Read, in.Topic, f.Prefix)
		if err != nil {
			return n, err
		}
		return l.count(ctx, in.Topic, topic, &query.Page{Filter: f, Limit: in.Limit}, until)
	})
}

// instants parses the parameter until.
func instants(texts []string) (all []int64, err error) {
	for _, text := range texts {
		at, err := instant("until", text)
		if err != nil {
			return nil, err
		}
		all = append(all, at)
	}
	if len(all) > maxUntil || !slices.IsSorted(all) || slices.Contains(all, 0) {
		return nil, invalid("until needs up to %d instants that ascend", maxUntil)
	}
	return all, nil
}

// count adds up the counts of all partitions that answer. With until it counts the timers that fire before each of
// these instants.
func (l *lists) count(ctx context.Context, name string, topic Topic, p *query.Page, until []int64) (TimerCount, error) {
	answers, missing, err := l.askAll(ctx, topic, &route.Call{Kind: route.Count, Topic: name, Page: p, Until: until},
		nil)
	all := TimerCount{Exact: len(missing) == 0, Missing: missing}
	for _, at := range until {
		all.Until = append(all.Until, CountUntil{At: instantOf(at), Exact: all.Exact})
	}
	if err != nil {
		return all, err
	}
	for _, answer := range answers {
		if len(answer.Counts) != len(until) {
			return all, fmt.Errorf("an owner counts for %d instants of %d", len(answer.Counts), len(until))
		}
		for i, n := range answer.Counts {
			sum := &all.Until[i]
			sum.Count, sum.Exact = sum.Count+n.N, sum.Exact && n.Exact
		}
		if n := answer.Count; n != nil {
			all.Count, all.Exact = all.Count+n.N, all.Exact && n.Exact
		}
	}
	if len(until) > 0 {
		last := all.Until[len(until)-1]
		all.Count, all.Exact = last.Count, last.Exact
	}
	return all, nil
}

// askAll sends the same call to all partitions of a topic, except those of without. It returns the responses, and as
// missing the partitions that could not be asked, those of without included. It fails if no partition responds, or if
// an error has another cause: see missingFor.
func (l *lists) askAll(
	ctx context.Context, topic Topic, c *route.Call, without []Missing,
) (answers []route.Answer, missing []Missing, err error) {
	all, errs := make([]route.Answer, topic.Partitions), make([]error, topic.Partitions)
	for _, m := range without {
		errs[m.Partition] = m.err
	}
	var asks errgroup.Group
	asks.SetLimit(asksAtOnce)
	for p := range topic.Partitions {
		if errs[p] != nil {
			continue
		}
		asks.Go(func() error {
			one := *c
			one.Partition = p
			all[p], errs[p] = l.asker.Ask(ctx, &one)
			return nil
		})
	}
	_ = asks.Wait() // the errors are those of the partitions
	for p, err := range errs {
		if err == nil {
			answers = append(answers, all[p])
			continue
		}
		m := missingFor(int32(p), err)
		if m == nil || errors.Is(ctx.Err(), context.Canceled) {
			return nil, nil, err
		}
		missing = append(missing, *m)
	}
	if len(answers) == 0 {
		return nil, nil, missingError(missing)
	}
	return answers, missing, nil
}

// missingFor describes a partition that could not be asked. It returns nil if the error has another cause, for
// example a wrong call.
func missingFor(p int32, err error) *Missing {
	problem := routed(err)
	switch problem.Reason {
	case ReasonElsewhere, ReasonMoving, ReasonFailed, ReasonKafka:
	default:
		return nil
	}
	m := &Missing{Partition: p, Reason: problem.Reason, Owner: problem.Owner, err: err}
	m.Detail = strings.TrimSuffix(problem.Detail, "; ask again")
	if elsewhere, ok := errors.AsType[*route.ElsewhereError](err); ok {
		m.Detail = "the owner is " + elsewhere.Owner() // the same for all its partitions
	}
	return m
}

// missingError returns nil if no partition is missing, otherwise the error of the first, for callers that need all of
// them.
func missingError(missing []Missing) error {
	if len(missing) == 0 {
		return nil
	}
	return missing[0].err
}

// cursor encodes the position at which a list continues. A query.Cursor means the same to all partitions. The filter
// is part of it, because with another filter timers would be skipped.
func cursor(place query.Cursor, filter string) string {
	if place.IsZero() {
		return ""
	}
	return place.String() + "~" + sumOf(filter)
}

func sumOf(filter string) string {
	sum := sha256.Sum256([]byte(filter))
	return hex.EncodeToString(sum[:8])
}

func parseCursor(text string, order query.Order, filter string) (query.Cursor, error) {
	if text == "" {
		return query.Cursor{}, nil
	}
	position, sum, _ := strings.Cut(text, "~")
	place, err := query.ParseCursor(position)
	if err != nil || place.Order != order || sum != sumOf(filter) {
		return place, invalid("the cursor is not one of this list: give the cursor of the page before, with the same " +
			"filter and order, or none")
	}
	return place, nil
}

// list responds with one page.
func (l *lists) list(ctx context.Context, name string, f *Filter, order query.Order, limit int,
	at string) (list TimerList, err error) {
	q, err := f.query()
	if err != nil {
		return list, err
	}
	topic, err := l.topics.topic(ctx, access.Read, name, q.Prefix)
	if err != nil {
		return list, err
	}
	text := fmt.Sprintf("%+v", q)
	from, err := parseCursor(at, order, text)
	if err != nil {
		return list, err
	}
	keep, err := reservePage(ctx, int(topic.Partitions))
	if err != nil {
		return list, err
	}
	found, missing, err := l.page(ctx, name, topic, query.Page{Filter: q, Order: order, Limit: limit, After: from})
	keep(found.Size())
	if err != nil {
		return list, err
	}
	list = TimerList{Timers: make([]*Timer, len(found.Timers)), Cursor: cursor(found.Next, text), Missing: missing}
	for i, t := range found.Timers {
		list.Timers[i] = view(t, false)
	}
	return list, nil
}

// share returns the number of timers of a page that each partition is asked for. A hash spreads IDs over partitions,
// so a partition hardly ever has more of the next ones than shareSpread deviations above the mean. In the order of
// IDs each timer is a random read of the store, so no more are requested at first. A partition that has more is asked
// again, for twice the mean.
func share(limit int, partitions int32, again bool) int {
	mean := float64(limit) / float64(partitions)
	n := 2 * mean
	if !again {
		n = min(n, mean+shareSpread*math.Sqrt(mean))
	}
	return max(leastShare, min(limit, int(n)))
}

// bytesShare is the number of bytes of a page that each partition is asked for.
func bytesShare(partitions int) int {
	return min(pageBytes, max(leastPageBytes, 2*pageBytes/max(1, partitions)))
}

// reservePage takes room for the largest page that the partitions may make together. Once the page is made, the
// caller calls keep with its bytes, which releases the rest.
func reservePage(ctx context.Context, partitions int) (keep func(bytes int), err error) {
	room := int64(pageFactor*pageBytes + bytesShare(partitions)*partitions)
	if err := access.Reserve(ctx, room); err != nil {
		return nil, err
	}
	return func(bytes int) { access.GiveBack(ctx, room-int64(pageFactor*bytes)) }, nil
}

// page merges pages of all partitions. Each partition is asked for its share, with some to spare, so memory does not
// grow with the number of partitions. They are asked again from the end of the merge, until the page is full, by
// number or by bytes. If the filter matches few timers, the page may end earlier: its cursor is where to continue. A
// partition that could not be asked in one round is not asked in later ones: the page would have a part of its timers
// and not name it as missing.
func (l *lists) page(
	ctx context.Context, name string, topic Topic, p query.Page,
) (all query.List, missing []Missing, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	limit, until := p.Limit, l.now().Add(fullPageTime)
	p.Bytes = bytesShare(int(topic.Partitions))
	for {
		p.Limit = share(limit, topic.Partitions, len(all.Timers) > 0)
		var answers []route.Answer
		answers, missing, err = l.askAll(ctx, topic, &route.Call{Kind: route.List, Topic: name, Page: &p}, missing)
		if err != nil {
			return all, nil, err
		}
		parts := make([]query.List, len(answers))
		for i, answer := range answers {
			parts[i] = answer.List
		}
		next := query.Merge(p.Order, limit-len(all.Timers), parts)
		all.Timers, all.Next = append(all.Timers, next.Timers...), next.Next
		all.Cut(p.Order, pageBytes)
		if all.Size() >= pageBytes/2 || all.Next.IsZero() || len(all.Timers) >= limit || l.now().After(until) {
			return all, missing, nil
		}
		p.After = all.Next
	}
}
