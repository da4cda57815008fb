package api_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
)

// deadLog is the partitions of dead-letter topics. It implements api.Logs.
type deadLog struct {
	emptyLogs

	mu    sync.Mutex // guards the fields below
	logs  map[string]map[int32][]*api.Record
	begin int64 // of each partition
	read  int64 // offsets that were read
	fail  error
}

func (d *deadLog) Bounds(_ context.Context, topic string) (map[int32][2]int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	bounds := map[int32][2]int64{0: {d.begin, d.begin}}
	for p, rs := range d.logs[topic] {
		bounds[p] = [2]int64{d.begin, max(d.begin, int64(len(rs)))}
	}
	return bounds, d.fail
}

func (d *deadLog) Read(_ context.Context, topic string, spans map[int32][2]int64, fn func(*api.Record) error) error {
	d.mu.Lock()
	var all []*api.Record
	for _, p := range slices.Sorted(maps.Keys(spans)) {
		d.read += spans[p][1] - spans[p][0]
		all = append(all, d.logs[topic][p][spans[p][0]:spans[p][1]]...)
	}
	err := d.fail
	d.mu.Unlock()
	if err != nil {
		return err
	}
	for _, r := range all {
		if r == nil { // a marker
			continue
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

// add writes a dead letter, followed by a marker.
func (d *deadLog) add(topic string, partition int32, at time.Time, id, reason string, headers ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.logs == nil {
		d.logs = make(map[string]map[int32][]*api.Record)
	}
	of := topic + ".dead"
	if d.logs[of] == nil {
		d.logs[of] = make(map[int32][]*api.Record)
	}
	r := &api.Record{Partition: partition, Offset: int64(len(d.logs[of][partition])), Time: at, Key: []byte(id),
		Value: []byte("v of " + id)}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, timer.Header{Key: headers[i], Value: []byte(headers[i+1])})
	}
	r.Headers = append(r.Headers, timer.Header{Key: waterclock.HeaderReason, Value: []byte(reason)},
		timer.Header{Key: waterclock.HeaderSource, Value: fmt.Appendf(nil, "%s/%d/%d", topic, partition, r.Offset)})
	d.logs[of][partition] = append(d.logs[of][partition], r, nil)
}

// counts asks until the answer is exact.
func counts(t *testing.T, in *instance, topic string) map[string]any {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		one := in.Get("/v1/dead-letters?topic="+topic).Is(200, "").Items("topics")[0]
		if one["exact"] == true {
			return one
		}
		if time.Now().After(end) {
			t.Fatalf("%v is not exact", one)
		}
	}
}

// Dead letters are counted by reason as they are in the log, also for fixed-delay topics. Old ones are
// not counted, and what was counted is not read again.
func TestDeadLettersAreCounted(t *testing.T) {
	l := &deadLog{}
	now := time.Now()
	for i := range 5000 {
		l.add("timers", int32(i%2), now.Add(-30*time.Hour), "ancient", "bad-cron")
	}
	for i := range 40 {
		l.add("timers", int32(i%3), now.Add(-5*time.Hour), "old", "bad-time")
	}
	for range 7 {
		l.add("timers", 1, now.Add(-time.Minute), "new", "bad-cron")
		l.add("retry", 0, now.Add(-time.Minute), "", "target-unknown")
	}
	in := reading(t, l)
	one := counts(t, in, "timers")
	if one["lastHour"] != 7.0 || one["lastDay"] != 47.0 || len(one["reasons"].([]any)) != 2 {
		t.Errorf("%v", one)
	}
	first := one["reasons"].([]any)[0].(map[string]any)
	if first["reason"] != "bad-cron" || first["lastHour"] != 7.0 || first["lastDay"] != 7.0 ||
		first["meaning"] != waterclock.ReasonBadCron.Meaning() {
		t.Errorf("%v", first)
	}
	if delayed := counts(t, in, "retry"); delayed["fixedDelay"] != true || delayed["lastHour"] != 7.0 {
		t.Errorf("%v", delayed)
	}
	in.Get("/v1/dead-letters?topic=none").Is(404, "no-such-topic")

	l.mu.Lock()
	before := l.read
	l.mu.Unlock()
	l.add("timers", 2, time.Now(), "newest", "bad-cron")
	for end := time.Now().Add(time.Minute); counts(t, in, "timers")["lastHour"] != 8.0; {
		if time.Now().After(end) {
			t.Fatal("what is new is not counted")
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.read - before; n > 2 {
		t.Errorf("%d offsets were read for one letter and its marker", n)
	}
}

// Anybody who may write to the topic of dead letters chooses reasons, and they are counted separately up to a limit,
// however often the log is read.
func TestReasonsAreBounded(t *testing.T) {
	l := &deadLog{}
	in := reading(t, l)
	const reads, each = 5, 80
	for r := range reads {
		for i := range each {
			l.add("timers", 0, time.Now().Add(-time.Minute), "a", fmt.Sprintf("made-up-%d-%d", r, i))
		}
		for end := time.Now().Add(time.Minute); counts(t, in, "timers")["lastDay"] != float64((r+1)*each); {
			if time.Now().After(end) {
				t.Fatal("what is new is not counted")
			}
		}
	}
	one := counts(t, in, "timers")
	if n := len(one["reasons"].([]any)); n > 101 || n < 100 {
		t.Errorf("%d reasons are counted separately, want 100 and the others", n)
	}
	for _, reason := range one["reasons"].([]any) {
		if m := reason.(map[string]any); m["reason"] == "other" && m["lastDay"] != float64(reads*each-100) {
			t.Errorf("%v", m)
		}
	}
}

// A log that cannot be read is reported as such, and not as empty. After a log was cut its count starts
// anew.
func TestCountsOfALogThatFails(t *testing.T) {
	t.Parallel()
	l := &deadLog{}
	for range 9 {
		l.add("timers", 0, time.Now(), "a", "bad-cron")
	}
	f := newFake("timers", partitions)
	f.may = func(_ context.Context, _ access.Role, topic, _ string) error {
		if topic == "retry" {
			return errors.New("not this one")
		}
		return nil
	}
	in := startWith(t, f, "p0", false, l)
	if one := counts(t, in, "timers"); one["lastHour"] != 9.0 {
		t.Error(one)
	}
	if all := in.Get("/v1/dead-letters").Is(200, "").Body["topics"].([]any); len(all) != 1 {
		t.Errorf("a caller without a right to it sees %v", all)
	}
	in.Get("/v1/dead-letters?topic=retry").Is(403, "forbidden")
	l.mu.Lock()
	l.fail = errors.New("the broker is away")
	l.mu.Unlock()
	ask := func() map[string]any {
		return in.Get("/v1/dead-letters?topic=timers").Is(200, "").Items("topics")[0]
	}
	for end := time.Now().Add(time.Minute); ask()["problem"] != "the broker is away"; {
		if time.Now().After(end) {
			t.Fatal(ask())
		}
	}
	l.mu.Lock()
	l.fail, l.logs["timers.dead"][0] = nil, l.logs["timers.dead"][0][:4]
	l.mu.Unlock()
	for end := time.Now().Add(time.Minute); counts(t, in, "timers")["lastHour"] != 2.0; {
		if time.Now().After(end) {
			t.Fatal(ask())
		}
	}
}

// A filter chooses dead letters across all pages, however rare they are. Each is on exactly one page.
func TestDeadLettersByFilter(t *testing.T) {
	l := &deadLog{}
	now := time.Now().Truncate(time.Second)
	want := map[string]bool{}
	for i := range 3000 {
		reason := "bad-cron"
		if i%500 == 7 {
			reason, want["order-"+strconv.Itoa(i)] = "bad-time", true
		}
		l.add("timers", int32(i%3), now.Add(time.Duration(i-3000)*time.Second), "order-"+strconv.Itoa(i), reason)
	}
	in := reading(t, l)
	for _, c := range []struct {
		name  string
		query url.Values
		want  int
	}{
		{"reason", url.Values{"reason": {"bad-time"}}, 6},
		{"prefix", url.Values{"prefix": {"order-29"}}, 111},
		{"after", url.Values{"after": {strconv.FormatInt(now.Add(-50*time.Second).UnixMilli(), 10)}}, 50},
		{"between", url.Values{"after": {now.Add(-50 * time.Second).Format(time.RFC3339)},
			"before": {now.Add(-40 * time.Second).Format(time.RFC3339)}, "reason": {"bad-cron"}}, 10},
		{"none", url.Values{"reason": {"no-target"}}, 0},
		{"all", nil, 3000},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen, cursor := map[string]bool{}, ""
			for pages := 0; ; pages++ {
				q := maps.Clone(c.query)
				if q == nil {
					q = url.Values{}
				}
				q.Set("limit", "100")
				q.Set("cursor", cursor)
				page := in.Get(allLetters+"?"+q.Encode()).Is(200, "")
				for _, one := range page.Body["deadLetters"].([]any) {
					id := one.(map[string]any)["id"].(string)
					if seen[id] || c.name == "reason" && !want[id] {
						t.Errorf("%s, which is there already or is not asked for", id)
					}
					seen[id] = true
				}
				if cursor, _ = page.Body["cursor"].(string); cursor == "" {
					break
				}
				if pages > 100 {
					t.Fatal("the list does not end")
				}
			}
			if len(seen) != c.want {
				t.Errorf("%d, want %d", len(seen), c.want)
			}
		})
	}
	in.Get(allLetters+"?after=soon").Is(400, "bad-request")
	if page := in.Get("/v1/topics/retry/dead-letters").Is(200, ""); page.Text != `{"deadLetters":[],"position":"0:0"}`+"\n" {
		t.Error(page.Text)
	}
}

// ended waits for the end of a job that an answer has started.
func ended(t *testing.T, in *instance, started answer) (job map[string]any) {
	t.Helper()
	at := "/v1/jobs/" + started.Is(202, "").Object("job")["id"].(string)
	await.Until(t, time.Minute, "the job ends", func() bool {
		job = in.Get(at).Is(200, "").Body
		return job["state"] != "running"
	})
	return job
}

// One job sends all dead letters that a filter chooses again, after a preview. Timers that were
// scheduled since they were written stay, unless they are to be replaced. Of several letters with the
// same ID the newest wins in both cases.
func TestDeadLettersAreSentAgain(t *testing.T) {
	l := &deadLog{}
	now := time.Now()
	for i := range 250 {
		id := "order-" + strconv.Itoa(i)
		l.add("timers", int32(i%3), now, id, "target-not-allowed", in1h, "1h", toOrders, "orders", "x", "older")
		l.add("timers", int32(i%3), now, id, "target-not-allowed", in1h, "2h", toOrders, "orders", "x", "newer")
	}
	l.add("timers", 0, now, "wrong", "target-not-allowed", "timer-after", "soon", toOrders, "orders")
	l.add("timers", 0, now, "cut", "target-not-allowed", in1h, "1h", toOrders, "orders",
		waterclock.HeaderTruncated, "value")
	l.add("timers", 0, now, "another", "bad-cron", in1h, "1h", toOrders, "orders")
	f := newFake("timers", partitions)
	in := startWith(t, f, "p0", false, l)
	const resend = allLetters + "/resend"
	in.Call("POST", resend, "").Is(400, "bad-request")
	preview := in.Call("POST", resend+"?dry-run=true&reason=target-not-allowed", "").Is(200, "").Object("letters")
	if preview["count"] != 502.0 || preview["exact"] != true || preview["notWhole"] != 1.0 ||
		preview["reasons"].(map[string]any)["target-not-allowed"] != 502.0 {
		t.Errorf("%v", preview)
	}
	in.Call("PUT", path("order-7"), "since", in1h, "5h", toOrders, "orders").Is(201, "scheduled")

	job := ended(t, in, in.Call("POST", resend+"?reason=target-not-allowed&rate=50000", ""))
	if job["state"] != "done" || job["seen"] != 502.0 || job["changed"] != 249.0 || job["spared"] != 251.0 ||
		job["failed"] != 2.0 || job["failure"] == nil {
		t.Errorf("%v", job)
	}
	value := func(id string) (value, x string) {
		for _, one := range f.all() {
			if string(one.ID) == id {
				value = string(one.Value)
				for _, h := range one.Headers {
					x = string(h.Value)
				}
			}
		}
		return value, x
	}
	if v, _ := value("order-7"); v != "since" {
		t.Errorf("what was scheduled since is %q", v)
	}
	if v, x := value("order-8"); v != "v of order-8" || x != "newer" {
		t.Errorf("%q of the %s letter", v, x)
	}
	if v, _ := value("another"); v != "" {
		t.Error("a letter of another reason was sent")
	}
	job = ended(t, in, in.Call("POST", resend+"?reason=target-not-allowed&replace=true&rate=50000", ""))
	if v, x := value("order-7"); job["changed"] != 500.0 || v != "v of order-7" || x != "newer" {
		t.Errorf("%q of the %s letter, %v", v, x, job)
	}
}

// A letter whose answer was lost is not sent again, because it might fire twice. Records of a
// fixed-delay topic go to their old partition, in order, with the count of their attempts.
func TestResendSendsOnce(t *testing.T) {
	l := &deadLog{}
	for i := range 3 {
		l.add("timers", 0, time.Now(), "a"+strconv.Itoa(i), "bad-cron", in1h, "1h", toOrders, "orders")
		l.add("retry", 1, time.Now(), "", "target-unknown", "n", strconv.Itoa(i), waterclock.HeaderAttempt, "2")
	}
	f := newFake("timers", partitions)
	delayed := timer.TopicPartition{Topic: "retry", Partition: 1}
	f.parts[delayed] = newFake("retry", partitions).parts[delayed]
	in := startWith(t, f, "p0", false, l)
	f.set(func() { f.unknown = true })
	job := ended(t, in, in.Call("POST", allLetters+"/resend?all=true", ""))
	if job["state"] != "done" || job["failed"] != 3.0 || job["failure"] != "the broker is not well" {
		t.Errorf("%v", job)
	}
	f.set(func() { f.unknown = false })
	job = ended(t, in, in.Call("POST", "/v1/topics/retry/dead-letters/resend?all=true", ""))
	if job["state"] != "done" || job["changed"] != 3.0 {
		t.Errorf("%v", job)
	}
	one := in.Call("POST", "/v1/topics/retry/dead-letters/1/2/resend", "").Is(202, "written")
	if one.Body["partition"] != 1.0 || one.Body["offset"] != 3.0 {
		t.Error(one.Text)
	}
}

// A caller who may not change all timers of a prefix may count what a resend would send, but not start
// it.
func TestResendNeedsRights(t *testing.T) {
	l := &deadLog{}
	l.add("timers", 0, time.Now(), "a", "bad-cron", in1h, "1h", toOrders, "orders")
	f := newFake("timers", partitions)
	f.may = func(_ context.Context, role access.Role, _, id string) error {
		if role == access.Admin && id != "a" {
			return errors.New("no admin")
		}
		return nil
	}
	in := startWith(t, f, "p0", false, l)
	const resend = allLetters + "/resend"
	in.Call("POST", resend+"?dry-run=true", "").Is(200, "")
	in.Call("POST", resend+"?all=true", "").Is(403, "forbidden")
	in.Call("POST", resend+"?reason=bad-cron", "").Is(403, "forbidden")
	if job := ended(t, in, in.Call("POST", resend+"?prefix=a", "")); job["changed"] != 1.0 {
		t.Error(job)
	}
}

// A job writes no faster than its rate.
func TestResendKeepsItsRate(t *testing.T) {
	l := &deadLog{}
	for i := range 60 {
		l.add("timers", 0, time.Now(), "a"+strconv.Itoa(i), "bad-cron", in1h, "1h", toOrders, "orders")
	}
	in := reading(t, l)
	began := time.Now()
	job := ended(t, in, in.Call("POST", allLetters+"/resend?all=true&rate=50", ""))
	if took := time.Since(began); job["changed"] != 60.0 || took < time.Second {
		t.Errorf("50 a second: 60 took %v, %v", took, job)
	}
}

// losing loses the answers to writes, although everything is written.
type losing struct {
	*route.Router
	asks atomic.Int32
}

func (l *losing) Ask(ctx context.Context, c *route.Call) (route.Answer, error) {
	answer, err := l.Router.Ask(ctx, c)
	if c.Kind != route.Write || err != nil {
		return answer, err
	}
	l.asks.Add(1)
	return route.Answer{}, fmt.Errorf("%w: the connection broke", route.ErrUnknown)
}

// A request whose answer was lost is not written again: it may have fired by then. It counts as failed.
func TestResendOfALostAnswer(t *testing.T) {
	l := &deadLog{}
	for i := range 3 {
		l.add("timers", 0, time.Now(), "a"+strconv.Itoa(i), "bad-cron", in1h, "1h", toOrders, "orders")
	}
	f := newFake("timers", 1)
	lost := &losing{Router: route.New(
		route.Options{Local: &local{f, "p0"}, Directory: f, Process: "p0", MaxBody: 1 << 20})}
	a := api.New(api.Options{
		Process: "p0", Asker: lost,
		Topics:      map[string]api.Topic{"timers": {Partitions: 1, MaxBytes: 1 << 20, DeadLetters: "timers.dead"}},
		PartitionOf: intake.Murmur2Partition, Logger: slog.New(slog.DiscardHandler), Logs: l,
	})
	lost.HaveJobs(a)
	t.Cleanup(a.Close)
	s := httptest.NewServer(a)
	t.Cleanup(s.Close)
	in := &instance{Caller: called(t, s.URL)}
	job := ended(t, in, in.Call("POST", allLetters+"/resend?all=true", ""))
	if n := lost.asks.Load(); n != 1 || job["state"] != "done" || job["failed"] != 3.0 {
		t.Errorf("written %d times: %v", n, job)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.parts[timer.TopicPartition{Topic: "timers"}].next; n != 3 {
		t.Errorf("%d requests are in the log, want each once", n)
	}
}

// A list has a next page however many partitions there are: its cursor fits into an address.
func TestLettersOfManyPartitions(t *testing.T) {
	l := &deadLog{}
	const many = 1000
	for p := range int32(many) {
		l.add("timers", p, time.Now().Add(-time.Duration(p)*time.Second), fmt.Sprintf("a%d", p), "bad-cron")
	}
	in := reading(t, l)
	seen := make(map[string]bool)
	for cursor, pages := "", 0; pages == 0 || cursor != ""; pages++ {
		a := in.Get(allLetters+"?limit=100&cursor="+cursor).Is(200, "")
		for _, d := range a.Body["deadLetters"].([]any) {
			seen[d.(map[string]any)["id"].(string)] = true
		}
		if cursor, _ = a.Body["cursor"].(string); len(cursor) > 8000 || pages > many {
			t.Fatalf("page %d has a cursor of %d bytes", pages, len(cursor))
		}
	}
	if len(seen) != many {
		t.Errorf("%d letters of %d", len(seen), many)
	}
}
