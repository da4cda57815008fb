package api_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// letterIDs lists the IDs of letters, in their order.
func letterIDs(t *testing.T, in *instance, q string) string {
	t.Helper()
	var ids []string
	for _, d := range in.Get(allLetters+"?"+q).Is(200, "").Items("deadLetters") {
		ids = append(ids, d["id"].(string))
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// newOnes waits until the count of new letters is as wanted.
func newOnes(t *testing.T, in *instance, want float64) map[string]any {
	t.Helper()
	var n map[string]any
	await.Until(t, 20*time.Second, fmt.Sprintf("%v letters are new", want), func() bool {
		one := in.Get("/v1/dead-letters?topic=timers").Is(200, "").Items("topics")[0]
		n, _ = one["new"].(map[string]any)
		return n != nil && n["count"] == want && n["exact"] == true
	})
	return n
}

// six writes letters a0 to a5, on two partitions in turn, the latest a minute ago.
func six(headers ...string) *fakeLogs {
	l := &fakeLogs{}
	for i := range 6 {
		reason := "target-unknown"
		if i == 4 {
			reason = "bad-cron"
		}
		l.letter("timers", int32(i%2), time.Now().Add(time.Duration(i-6)*time.Minute), fmt.Sprintf("a%d", i),
			reason, headers...)
	}
	return l
}

// A reviewed letter is not new: in lists, in counts, at any instance, and until that is undone.
func TestReviewedUpToHere(t *testing.T) {
	l := six()
	f := newFake("timers", partitions)
	in, other := start(t, f, "p0", false, withLogs(l)), start(t, f, "p1", false, withLogs(l))
	const reviewed = allLetters + "/reviewed"
	if a := in.Get(reviewed).Is(200, ""); a.Body["at"] != nil || a.Body["position"] != "0:0.0" {
		t.Error(a.Text)
	}
	if got := letterIDs(t, in, "reviewed=false"); got != "a0 a1 a2 a3 a4 a5" {
		t.Errorf("new are %s", got)
	}
	// a2 is on partition 0, with a marker behind it.
	a := in.Call("POST", allLetters+"/0/2/reviewed?older=true", "", "Test-Caller", "alice").Is(200, "")
	if a.Body["position"] != "0:3.2" || a.Body["before"] != "0:0.0" {
		t.Error(a.Text)
	}
	for _, in := range []*instance{in, other} {
		await.Until(t, 20*time.Second, "both instances know it",
			func() bool { return letterIDs(t, in, "reviewed=false") == "a3 a4 a5" })
		if got := letterIDs(t, in, "reviewed=true"); got != "a0 a1 a2" {
			t.Errorf("reviewed are %s", got)
		}
		n := newOnes(t, in, 3)
		if reasons := n["reasons"].(map[string]any); reasons["target-unknown"] != 2.0 || reasons["bad-cron"] != 1.0 {
			t.Errorf("%v", n)
		}
	}
	// A single one above the mark.
	in.Call("POST", allLetters+"/0/4/reviewed", "").Is(200, "")
	if got := letterIDs(t, in, "reviewed=false"); got != "a3 a5" {
		t.Errorf("new are %s", got)
	}
	newOnes(t, in, 2)
	l.letter("timers", 1, time.Now(), "a6", "target-unknown")
	newOnes(t, in, 3)

	list := in.Get(allLetters).Is(200, "")
	a = in.Call("POST", reviewed+"?position="+list.Body["position"].(string), "").Is(200, "")
	if newOnes(t, in, 0); letterIDs(t, in, "reviewed=false") != "" {
		t.Errorf("new are %s", letterIDs(t, in, "reviewed=false"))
	}
	in.Call("POST", reviewed+"?back=true&position="+a.Body["before"].(string), "").Is(200, "")
	if got := letterIDs(t, in, "reviewed=false"); got != "a3 a4 a5 a6" { // singles are forgotten
		t.Errorf("new are %s", got)
	}
	newOnes(t, in, 4)
	at := fmt.Sprint(time.Now().Add(-90 * time.Second).UnixMilli())
	in.Call("POST", reviewed+"?before="+at, "").Is(200, "")
	if got := letterIDs(t, in, "reviewed=false"); got != "a5 a6" {
		t.Errorf("new are %s", got)
	}
	for _, bad := range []string{"", "?back=true", "?position=x", "?before=soon", "?position=0:1&before=" + at,
		"?back=true&before=" + at} {
		in.Call("POST", reviewed+bad, "").Is(400, "bad-request")
	}
	in.Call("POST", allLetters+"/0/99/reviewed", "").Is(404, "not-found")
	in.Get(allLetters+"?reviewed=perhaps").Is(400, "bad-request")

	// A topic that was recreated has none of the letters that were reviewed.
	l.set(func() { l.of = nil })
	l.letter("timers", 0, time.Now(), "b0", "bad-cron")
	if got := letterIDs(t, in, "reviewed=false"); got != "b0" {
		t.Errorf("new are %s", got)
	}
	// Nor does a new mark bring the old ones back.
	in.Call("POST", allLetters+"/0/0/reviewed", "").Is(200, "")
	for i := 1; i < 8; i++ {
		l.letter("timers", 0, time.Now(), fmt.Sprintf("b%d", i), "bad-cron")
	}
	if got := letterIDs(t, in, "reviewed=false"); got != "b1 b2 b3 b4 b5 b6 b7" {
		t.Errorf("new are %s", got)
	}
}

// Two instances that mark at the same time both have their say.
func TestReviewedTwiceAtOnce(t *testing.T) {
	l := six()
	f := newFake("timers", partitions)
	in, other := start(t, f, "p0", false, withLogs(l)), start(t, f, "p1", false, withLogs(l))
	l.between = func() {
		other.Call("POST", allLetters+"/0/4/reviewed", "").Is(200, "")
	}
	in.Call("POST", allLetters+"/0/0/reviewed", "").Is(200, "")
	await.Until(t, 20*time.Second, "both letters are reviewed",
		func() bool { return letterIDs(t, in, "reviewed=true") == "a0 a4" })
}

// Marks need the right to write; without them, and if Kafka refuses, all else works.
func TestReviewedIsRefused(t *testing.T) {
	l := six()
	f := newFake("timers", partitions)
	in := start(t, f, "p0", false, withLogs(l))
	l.set(func() { l.refuse = errors.New("GROUP_AUTHORIZATION_FAILED") })
	const reviewed = allLetters + "/reviewed"
	in.Get(reviewed).Is(503, "kafka-unreachable").Has("GROUP_AUTHORIZATION_FAILED")
	in.Get(allLetters+"?reviewed=false").Is(503, "kafka-unreachable")
	if got := letterIDs(t, in, ""); got != "a0 a1 a2 a3 a4 a5" {
		t.Errorf("the list has %s", got)
	}
	if n := counts(t, in, "timers"); n["lastDay"] != 6.0 || n["new"] != nil {
		t.Errorf("%v", n)
	}
	l.set(func() { l.refuse = nil })
	f.set(func() {
		f.may = func(_ context.Context, role access.Role, _, _ string) error {
			if role > access.Read {
				return errors.New("may only read")
			}
			return nil
		}
	})
	in.Get(reviewed).Is(200, "")
	in.Call("POST", reviewed+"?position=0:1", "").Is(403, "forbidden")
	in.Call("POST", allLetters+"/0/0/reviewed", "").Is(403, "forbidden")
}

// Letters that were sent again are reviewed, and a resend of new letters leaves them out; failed ones stay new.
func TestWhatIsResentIsReviewed(t *testing.T) {
	const resend = allLetters + "/resend"
	job := func(t *testing.T, in *instance, q string) string {
		t.Helper()
		j := ended(t, in, in.Call("POST", resend+"?"+q, "").Is(202, ""))
		if why := j["unmarked"]; why != nil {
			t.Errorf("%s: %v", q, why)
		}
		return fmt.Sprint(j["seen"], j["changed"], j["failed"])
	}
	for _, replace := range []string{"", "&replace=true"} {
		t.Run(cmp.Or(replace, "newest first"), func(t *testing.T) {
			l := six("timer-after", "1h", "timer-target-topic", "orders")
			in := reading(t, l)
			l.letter("timers", 1, time.Now(), "bad", "bad-cron", "timer-after", "soon", "timer-target-topic", "orders")
			in.Call("POST", allLetters+"/0/2/resend", "").Is(201, "")
			if got := letterIDs(t, in, "reviewed=true"); got != "a2" {
				t.Errorf("reviewed are %s", got)
			}
			if got := job(t, in, "reviewed=false&reason=bad-cron"+replace); got != "2 1 1" {
				t.Errorf("by reason: seen, changed and failed: %s", got)
			}
			if got := letterIDs(t, in, "reviewed=true"); got != "a2 a4" {
				t.Errorf("reviewed are %s", got)
			}
			preview := in.Call("POST", resend+"?reviewed=false&dry-run=true", "").Is(200, "")
			if n := preview.Object("letters")["count"]; n != 5.0 {
				t.Errorf("%v are new", n)
			}
			if got := job(t, in, "reviewed=false"+replace); got != "5 4 1" {
				t.Errorf("all: seen, changed and failed: %s", got)
			}
			if got := letterIDs(t, in, "reviewed=false"); got != "bad" {
				t.Errorf("new are %s", got)
			}
			if got := job(t, in, "reviewed=false"+replace); got != "1 0 1" {
				t.Errorf("again: seen, changed and failed: %s", got)
			}
			newOnes(t, in, 1)
			if a := in.Get(allLetters + "/reviewed"); a.Body["position"] != "0:6.6" {
				t.Errorf("%s: all but the one that failed lie below it", a.Text)
			}
		})
	}
}

// Others may commit to the group of marks, too. A time that JSON does not have, or one of the future, keeps nothing
// from being told.
func TestMarksWithOddTimes(t *testing.T) {
	for _, note := range []string{`{"at":9223372036854775807}`, `{"at":-9223372036854775808}`,
		`{"at":99999999999999}`} {
		l := six()
		l.marks = map[string]map[int32]api.Mark{"timers.dead": {0: {Offset: 2, Metadata: note}}}
		in := reading(t, l)
		a := in.Get(allLetters+"/reviewed").Is(200, "")
		at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(a.Body["at"]))
		if a.Body["position"] != "0:2.0" || err != nil || at.After(time.Now()) {
			t.Errorf("%s: %s %v", note, a.Text, err)
		}
		newOnes(t, in, 5)
	}
}

// However many partitions a topic of dead letters has, and however many of its letters are new, they are counted in the
// end.
func TestManyNewLettersAreCounted(t *testing.T) {
	l := six()
	l.marks = map[string]map[int32]api.Mark{"timers.dead": {0: {Metadata: `{"at":1790000000000}`}}}
	one := *l.of["timers.dead"][0][0]
	const many, each = 130, 2_050
	for p := range int32(many) {
		rs := make([]*api.Record, each)
		for o := range rs {
			r := one
			r.Partition, r.Offset = p, int64(o)
			rs[o] = &r
		}
		l.of["timers.dead"][p] = rs
	}
	in := reading(t, l)
	newOnes(t, in, many*each)
}

// Other programs may write letters with any number of reasons. So many are not told apart.
func TestReasonsOfNewLettersAreBounded(t *testing.T) {
	l := six()
	l.marks = map[string]map[int32]api.Mark{"timers.dead": {0: {Metadata: `{"at":1790000000000}`}}}
	for i := range 1000 {
		l.letter("timers", 0, time.Now(), "x", fmt.Sprintf("odd-%d", i))
	}
	in := reading(t, l)
	if n := newOnes(t, in, 1006); len(n["reasons"].(map[string]any)) > 101 {
		t.Errorf("%d reasons", len(n["reasons"].(map[string]any)))
	}
}

// Of two resends of new letters, at any two instances, only one runs at a time: both would send the same letters. What
// it has sent is noted as it goes, and not only at the end, which an instance may not live to see.
func TestOneResendOfWhatIsNewAtATime(t *testing.T) {
	const resend = allLetters + "/resend"
	l := &fakeLogs{}
	for i := range 1100 {
		l.letter("timers", 0, time.Now().Add(-time.Minute), fmt.Sprintf("a%04d", i), "target-unknown",
			"timer-after", "1h", "timer-target-topic", "orders")
	}
	in := reading(t, l)
	first := in.Call("POST", resend+"?reviewed=false&rate=90", "").Is(202, "")
	at := first.Header.Get("Location")
	in.Call("POST", resend+"?reviewed=false", "").Is(429, "too-many-jobs")
	in.Call("POST", resend+"?reviewed=false&dry-run=true", "").Is(200, "")
	await.Until(t, 20*time.Second, "what was sent is noted", func() bool {
		return letterIDs(t, in, "reviewed=true") != ""
	})
	if j := in.Get(at).Is(200, ""); j.Body["state"] != "running" {
		t.Errorf("only at the end: %s", j.Text)
	}
	in.Call("DELETE", at, "").Is(200, "")
	sent := ended(t, in, first)["changed"].(float64)
	again := ended(t, in, in.Call("POST", resend+"?reviewed=false&rate=50000", "").Is(202, ""))
	if sent == 0 || sent == 1100 || again["seen"] != 1100-sent {
		t.Errorf("%v were sent, then %v", sent, again)
	}
}

// Marks of one instance stay undone if another one undoes them immediately.
func TestUndoneElsewhere(t *testing.T) {
	l := six()
	f := newFake("timers", partitions)
	in, other := start(t, f, "p0", false, withLogs(l)), start(t, f, "p1", false, withLogs(l))
	in.Call("POST", allLetters+"/0/4/reviewed?older=true", "").Is(200, "")
	other.Call("POST", allLetters+"/reviewed?back=true&position=0:0.0", "").Is(200, "")
	await.For(t, 1500*time.Millisecond) // in looks at its mark again
	if got := letterIDs(t, in, "reviewed=true"); got != "" {
		t.Errorf("reviewed are %s", got)
	}
	in.Call("POST", allLetters+"/0/0/reviewed", "").Is(200, "")
	if got := letterIDs(t, other, "reviewed=true"); got != "a0" {
		t.Errorf("reviewed are %s", got)
	}
}
