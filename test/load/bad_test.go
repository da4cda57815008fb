package load

import (
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
	s := newSetup(t).start()
	out := kafkatest.Collect(t, s.Cluster, s.Target)
	letters := kafkatest.Collect(t, s.Cluster, s.Requests+".waterclock.dead-letters")
	seconds := badFor
	if !runs.Full() {
		seconds = 2
	}
	bads, goods := badRate*seconds, goodRate*seconds
	start, cl := time.Now(), s.Cluster.Client(t, batched(kgo.Lz4Compression())...)
	sent := make(chan error, 1)
	go func() {
		sent <- sendPaced(cl, 0, bads, badRate, func(i int) *kgo.Record {
			r := s.timer(goods+i, start, []byte(strconv.Itoa(i)))
			bad[i%len(bad)].spoil(r)
			return r
		})
	}()
	s.w.during(sendLimit, "send good timers", func() error {
		return sendPaced(s.Client, 0, goods, goodRate, func(i int) *kgo.Record {
			return s.timer(i, time.Now().Add(time.Duration(i%1000)*time.Millisecond), []byte("payload"))
		})
	})
	s.w.during(sendLimit, "send bad requests", func() error { return <-sent })
	s.w.until(settleLimit, "all fired or refused", func() bool {
		return len(out.Records()) >= goods && len(letters.Records()) >= bads
	})
	s.w.atRest(settleLimit, 0)
	out.Quiet(quiet)
	rig.Exactly(t, out.Records(), goods)
	checkLetters(t, letters.Records(), bads)
	s.end()
}

// checkLetters checks that each bad request became one dead letter, with its reason. Their values are their numbers.
func checkLetters(t *testing.T, letters []kafkatest.Received, bads int) {
	t.Helper()
	numbers, sources := make(map[int]bool, bads), make(map[string]bool, bads)
	for _, r := range letters {
		i, err := strconv.Atoi(string(r.Value))
		if err != nil || i < 0 || i >= bads {
			t.Fatalf("a dead letter with the value %q", r.Value)
		}
		numbers[i], sources[r.Header("waterclock-source")] = true, true
		if got, want := r.Header("waterclock-reason"), bad[i%len(bad)].reason; got != want {
			t.Fatalf("request %d: %s, want %s", i, got, want)
		}
	}
	if len(letters) != bads || len(numbers) != bads || len(sources) != bads {
		kafkatest.Inexact(t, "%d dead letters of %d requests and %d sources, want one for each of %d bad requests",
			len(letters), len(numbers), len(sources), bads)
	}
}
