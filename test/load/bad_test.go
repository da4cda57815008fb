package load

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	badRate  = 10_000 // a second
	goodRate = 500
	badFor   = 5 // seconds; 2 below the full size
)

// bad are Rejected requests, and the reason of each.
var bad = []struct {
	reason string
	spoil  func(r *kgo.Record)
}{
	{"bad-key", func(r *kgo.Record) { r.Key = nil }},
	{"no-due-time", func(r *kgo.Record) { r.Headers = r.Headers[1:] }},
	{"no-target", func(r *kgo.Record) { r.Headers = r.Headers[:1] }},
	{"bad-time", func(r *kgo.Record) { r.Headers[0].Value = []byte("tomorrow") }},
	{"unknown-header", func(r *kgo.Record) { r.Headers = append(r.Headers, kgo.RecordHeader{Key: "timer-att"}) }},
	{"too-many-headers", func(r *kgo.Record) {
		r.Headers = append(r.Headers, slices.Repeat([]kgo.RecordHeader{{Key: "h"}}, 127)...)
	}},
}

// Ten thousand bad requests a second beside a steady stream of good timers:
// every bad one becomes one dead letter that says why, every good one fires once.
func TestBadRequestsBesideGoodOnes(t *testing.T) {
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, partitions, nil, requests+"-out")
	p := serve(t, c, requests)
	w := watchOf(t, &p.Web, least().Requests)
	out := kafkatest.Collect(t, c, target)
	letters := kafkatest.Collect(t, c, requests+".waterclock.dead-letters")
	badClient, goodClient := producer(t, c), producer(t, c)
	seconds := badFor
	if !runs.Full() {
		seconds = 2
	}
	bads, goods := badRate*seconds, goodRate*seconds
	value := []byte("payload")

	start := time.Now()
	sent := make(chan error, 1)
	var spoiltFor time.Duration
	go func() {
		err := sendPaced(badClient, 0, bads, badRate, func(i int) *kgo.Record {
			r := timer(requests, target, goods+i, start, []byte(strconv.Itoa(i)))
			bad[i%len(bad)].spoil(r)
			return r
		})
		spoiltFor = time.Since(start)
		sent <- err
	}()
	w.during(sendLimit, "send good timers", func() error {
		return sendPaced(goodClient, 0, goods, goodRate, func(i int) *kgo.Record {
			return timer(requests, target, i, time.Now().Add(time.Duration(i%1000)*time.Millisecond), value)
		})
	})
	w.during(sendLimit, "send bad requests", func() error { return <-sent })
	w.until(settleLimit, "all fired or refused", func() bool {
		return len(out.Records()) >= goods && len(letters.Records()) >= bads
	})
	w.atRest(settleLimit, 0)
	took := time.Since(start)
	out.Quiet(quiet)

	rig.Exactly(t, out.Records(), goods)
	checkLetters(t, letters.Records(), bads)
	_, peak := p.Memory()
	t.Logf("%d bad requests sent in %s, all settled after %s, good timers up to %s late; peak memory %.1f MiB; %s",
		bads, spoiltFor.Round(time.Millisecond), took.Round(time.Millisecond), latest(out.Records()),
		float64(peak)/mib, w)
	w.check()
	stop(t, p)
}

// checkLetters checks that each bad request became one dead letter, with its
// reason. Their values are their numbers.
func checkLetters(t *testing.T, letters []kafkatest.Received, bads int) {
	t.Helper()
	if len(letters) != bads {
		t.Errorf("%d dead letters, want %d", len(letters), bads)
	}
	numbers, sources := make([]int, bads), make(map[string]int, bads)
	wrong := ""
	for _, r := range letters {
		i, err := strconv.Atoi(string(r.Value))
		if err != nil || i < 0 || i >= bads {
			t.Fatalf("a dead letter with the value %q", r.Value)
		}
		numbers[i]++
		sources[r.Header("waterclock-source")]++
		if got, want := r.Header("waterclock-reason"), bad[i%len(bad)].reason; got != want {
			wrong = fmt.Sprintf("request %d: %s, want %s", i, got, want)
		}
	}
	if wrong != "" {
		t.Error(wrong)
	}
	lost, duplicated := 0, 0
	for _, n := range numbers {
		if n == 0 {
			lost++
		}
		duplicated += max(0, n-1)
	}
	if lost+duplicated > 0 || len(sources) != bads {
		kafkatest.Inexact(t, "%d bad requests without a dead letter, %d letters too many, %d sources of %d", lost,
			duplicated, len(sources), bads)
	}
}

// latest is the greatest lateness by receipt.
func latest(emissions []kafkatest.Received) (most time.Duration) {
	for _, r := range emissions {
		ms, _ := strconv.ParseInt(r.Header("waterclock-due"), 10, 64) // checked before
		most = max(most, r.At.Sub(time.UnixMilli(ms)))
	}
	return most.Round(time.Millisecond)
}
