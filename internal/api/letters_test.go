package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/timer"
)

// counts asks until the answer is exact.
func counts(t *testing.T, in *instance, topic string) map[string]any {
	t.Helper()
	var one map[string]any
	await.Until(t, time.Minute, "the answer is exact", func() bool {
		one = in.Get("/v1/dead-letters?topic="+topic).Is(200, "").Items("topics")[0]
		return one["exact"] == true
	})
	return one
}

// Dead letters are counted by reason as they are in the log, also for fixed-delay topics. Old ones are
// not counted, and counted letters are not read again.
func TestDeadLettersAreCounted(t *testing.T) {
	l := &fakeLogs{}
	now := time.Now()
	for i := range 5000 {
		l.letter("timers", int32(i%2), now.Add(-30*time.Hour), "ancient", "bad-cron")
	}
	for i := range 40 {
		l.letter("timers", int32(i%3), now.Add(-5*time.Hour), "old", "bad-time")
	}
	for range 7 {
		l.letter("timers", 1, now.Add(-time.Minute), "new", "bad-cron")
		l.letter("retry", 0, now.Add(-time.Minute), "", "target-unknown")
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
	before := l.offsets
	l.mu.Unlock()
	l.letter("timers", 2, time.Now(), "newest", "bad-cron")
	await.Until(t, time.Minute, "it is counted", func() bool { return counts(t, in, "timers")["lastHour"] == 8.0 })
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.offsets - before; n > 2 {
		t.Errorf("%d offsets were read for one letter and its marker", n)
	}
}

// Dead letters have the labels of their requests, if they are valid.
func TestDeadLettersByLabel(t *testing.T) {
	l := &fakeLogs{}
	for i := range 20 {
		l.letter("timers", int32(i%2), time.Now().Add(-time.Minute), fmt.Sprint("a", i), "bad-cron", "timer-labels",
			fmt.Sprintf("n=%d,team=%c", i, 'a'+rune(i%4)))
	}
	l.letter("timers", 0, time.Now(), "bad", "bad-labels", "timer-labels", "team=a,team=a")
	l.letter("timers", 0, time.Now(), "none", "bad-time")
	in := reading(t, l)
	for q, want := range map[string]int{"label=team=a": 5, "label=team=a&label=n!=4": 4, "label=team!=a": 17,
		"label=n":                      20,
		"label=team=b&reason=bad-time": 0} {
		n := 0
		in.Pages("/v1/topics/timers/dead-letters?"+q, func(page answer) { n += len(page.Items("deadLetters")) })
		dry := in.Call("POST", "/v1/topics/timers/dead-letters/resend?dry-run=true&"+q, "").Is(200, "")
		if count := dry.Object("letters")["count"]; n != want || count != float64(want) {
			t.Errorf("%s: %d listed and %v to be sent, want %d", q, n, count, want)
		}
	}
	in.Get("/v1/topics/timers/dead-letters?label=!a").Is(400, "bad-request")
}

// A producer that may write to the topic of dead letters chooses reasons, and they are counted separately up to a
// limit, however often the log is read.
func TestReasonsAreBounded(t *testing.T) {
	runs.NotRaced(t)
	l := &fakeLogs{}
	in := reading(t, l)
	const reads, each = 5, 80
	for r := range reads {
		for i := range each {
			l.letter("timers", 0, time.Now().Add(-time.Minute), "a", fmt.Sprintf("made-up-%d-%d", r, i))
		}
		await.Until(t, time.Minute, "it is counted", func() bool {
			return counts(t, in, "timers")["lastDay"] == float64((r+1)*each)
		})
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
	l := &fakeLogs{}
	for range 9 {
		l.letter("timers", 0, time.Now(), "a", "bad-cron")
	}
	f := newFake("timers", partitions)
	f.may = func(_ context.Context, _ access.Role, topic, _ string) error {
		if topic == "retry" {
			return errors.New("not this one")
		}
		return nil
	}
	in := start(t, f, "p0", false, withLogs(l))
	if one := counts(t, in, "timers"); one["lastHour"] != 9.0 {
		t.Error(one)
	}
	if all := in.Get("/v1/dead-letters").Is(200, "").Body["topics"].([]any); len(all) != 1 {
		t.Errorf("a caller without a right to it sees %v", all)
	}
	in.Get("/v1/dead-letters?topic=retry").Is(403, "forbidden")
	l.set(func() { l.fail = errors.New("the broker is away") })
	ask := func() map[string]any {
		return in.Get("/v1/dead-letters?topic=timers").Is(200, "").Items("topics")[0]
	}
	await.Until(t, time.Minute, "it is counted", func() bool { return ask()["problem"] == "the broker is away" })
	l.set(func() { l.fail, l.of["timers.dead"][0] = nil, l.of["timers.dead"][0][:4] })
	await.Until(t, time.Minute, "it is counted", func() bool { return counts(t, in, "timers")["lastHour"] == 2.0 })
}

// A filter chooses dead letters across all pages, however rare they are. Each is on exactly one page.
func TestDeadLettersByFilter(t *testing.T) {
	l := &fakeLogs{}
	now := time.Now().Truncate(time.Second)
	want := map[string]bool{}
	for i := range 3000 {
		reason := "bad-cron"
		if i%500 == 7 {
			reason, want["order-"+strconv.Itoa(i)] = "bad-time", true
		}
		l.letter("timers", int32(i%3), now.Add(time.Duration(i-3000)*time.Second), "order-"+strconv.Itoa(i), reason)
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
		{"all", url.Values{}, 3000},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := map[string]bool{}
			c.query.Set("limit", "100")
			in.Pages(allLetters+"?"+c.query.Encode(), func(page answer) {
				for _, one := range page.Items("deadLetters") {
					id := one["id"].(string)
					if seen[id] || c.name == "reason" && !want[id] {
						t.Errorf("%s, which is there already or is not asked for", id)
					}
					seen[id] = true
				}
			})
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
	l := &fakeLogs{}
	now := time.Now()
	for i := range 250 {
		id := "order-" + strconv.Itoa(i)
		at := now.Add(time.Duration(i-250) * time.Second)
		l.letter("timers", int32(i%3), at, id, "target-not-allowed", in1h, "1h", toOrders, "orders", "x", "older")
		l.letter("timers", int32((i+1)%3), at.Add(time.Millisecond), id, "target-not-allowed", in1h, "2h", toOrders,
			"orders", "x", "newer")
	}
	l.letter("timers", 0, now, "wrong", "target-not-allowed", "timer-after", "soon", toOrders, "orders")
	l.letter("timers", 0, now, "cut", "target-not-allowed", in1h, "1h", toOrders, "orders",
		waterclock.HeaderTruncated, "value")
	l.letter("timers", 0, now, "another", "bad-cron", in1h, "1h", toOrders, "orders")
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false, withLogs(l))
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
	l := &fakeLogs{}
	for i := range 3 {
		l.letter("timers", 0, time.Now(), "a"+strconv.Itoa(i), "bad-cron", in1h, "1h", toOrders, "orders")
		l.letter("retry", 1, time.Now(), "", "target-unknown", "n", strconv.Itoa(i), waterclock.HeaderAttempt, "2")
	}
	f := newFake("timers", partitions)
	delayed := timer.TopicPartition{Topic: "retry", Partition: 1}
	f.parts[delayed] = newFake("retry", partitions).parts[delayed]
	in := start(t, f, "p0", false, withLogs(l))
	f.set(func() { f.unknown = true })
	job := ended(t, in, in.Call("POST", allLetters+"/resend?all=true", ""))
	if n := f.written(); n != 3 || job["state"] != "done" || job["failed"] != 3.0 ||
		job["failure"] != "the broker is not well" {
		t.Errorf("%d requests are in the log, want each once: %v", n, job)
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

// A caller who may not change all timers of a prefix may count the letters that a resend would send, but not start
// it.
func TestResendNeedsRights(t *testing.T) {
	l := &fakeLogs{}
	l.letter("timers", 0, time.Now(), "a", "bad-cron", in1h, "1h", toOrders, "orders")
	f := newFake("timers", partitions)
	f.may = func(_ context.Context, role access.Role, _, id string) error {
		if role == access.Admin && id != "a" {
			return errors.New("no admin")
		}
		return nil
	}
	in := start(t, f, "p0", false, withLogs(l))
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
	l := &fakeLogs{}
	for i := range 60 {
		l.letter("timers", 0, time.Now(), "a"+strconv.Itoa(i), "bad-cron", in1h, "1h", toOrders, "orders")
	}
	in := reading(t, l)
	began := time.Now()
	job := ended(t, in, in.Call("POST", allLetters+"/resend?all=true&rate=50", ""))
	if took := time.Since(began); job["changed"] != 60.0 || took < time.Second {
		t.Errorf("50 a second: 60 took %v, %v", took, job)
	}
}

// A list has a next page however many partitions there are: its cursor fits into an address.
func TestLettersOfManyPartitions(t *testing.T) {
	runs.NotRaced(t)
	l := &fakeLogs{}
	const many = 1000
	for p := range int32(many) {
		l.letter("timers", p, time.Now().Add(-time.Duration(p)*time.Second), fmt.Sprintf("a%d", p), "bad-cron")
	}
	in := reading(t, l)
	seen := make(map[string]bool)
	in.Pages(allLetters+"?limit=100", func(page answer) {
		for _, d := range page.Items("deadLetters") {
			seen[d["id"].(string)] = true
		}
		if cursor, _ := page.Body["cursor"].(string); len(cursor) > 8000 {
			t.Errorf("a cursor of %d bytes", len(cursor))
		}
	})
	if len(seen) != many {
		t.Errorf("%d letters of %d", len(seen), many)
	}
}
