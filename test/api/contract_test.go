package api

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// A timer made over HTTP is the one that is made over Kafka: the same emission byte for byte,
// the same dead letter reason for reason.
func TestTheSameOverHTTP(t *testing.T) {
	t.Parallel()
	s := &setup{Setup: rig.NewSetup(t, kafkatest.Shared(t), partitions, 3)}
	s = s.serve()
	due := fmt.Sprint(time.Now().Add(2 * time.Second).UnixMilli())
	s.Send(s.Request("over-kafka", "v\x00\xff", "timer-at", due, "timer-target-topic", s.Target,
		"timer-target-key", "k", "b", "2=2", "a", "1"))
	put := s.Call("PUT", s.timer("over-http"), "v\x00\xff", "timer-at", due, "timer-target-topic", s.Target,
		"timer-target-key", "k", "waterclock-pass", "b=2=2", "waterclock-pass", "a=1").Is(201, "scheduled")
	source := strings.Trim(put.Header.Get("ETag"), `"`)
	if want := fmt.Sprintf("%s/%.0f/%.0f", s.Requests, put.Body["partition"], put.Body["offset"]); source != want {
		t.Errorf("ETag %s, want %s", source, want)
	}

	out := byID(s.Out.WaitFor(2, limit))
	k, h := out["over-kafka"], out["over-http"]
	show := func(r *kgo.Record) string {
		text := fmt.Sprintf("key %q, value %q, partition %d,", r.Key, r.Value, r.Partition)
		for _, header := range r.Headers {
			if !strings.HasPrefix(header.Key, "waterclock-") || header.Key == "waterclock-due" {
				text += fmt.Sprintf(" %s=%s", header.Key, header.Value)
			}
		}
		return text
	}
	if show(k) != show(h) {
		t.Errorf("over Kafka %s, over HTTP %s", show(k), show(h))
	}
	if got := header(h, "waterclock-source"); got != source {
		t.Errorf("source %s, was told %s", got, source)
	}

	// The problem is the dead letter that the same request becomes over Kafka.
	bad := s.put("bad", "timer-at", "tomorrow").Is(400, "bad-time")
	s.Send(s.Request("bad", "v", "timer-at", "tomorrow", "timer-target-topic", s.Target))
	letter := s.letters(1)[0]
	if reason, detail := letter.Header("waterclock-reason"),
		letter.Header("waterclock-detail"); reason != bad.Body["reason"] || detail != bad.Body["detail"] {
		t.Errorf("dead letter %s %s, problem %s", reason, detail, bad.Text)
	}
}

func byID(records []kafkatest.Received) map[string]*kgo.Record {
	all := make(map[string]*kgo.Record)
	for _, r := range records {
		all[r.Header("waterclock-id")] = r.Record
	}
	return all
}

// A mistake over HTTP, by a form of the console, or in a list writes nothing to the request topic, makes no dead
// letter, and raises no alert: no metric counts it.
func TestMistakesAreNotWritten(t *testing.T) {
	t.Parallel()
	s := start(t, func(cfg *config.Config) {
		cfg.Targets, cfg.Console = []string{cfg.Requests[0] + "-out"}, true
	})
	after := []string{"timer-after", "1h", "timer-target-topic"}
	form := url.Values{"topic": {s.Requests}, "id": {"a"}, "after": {"1 hour"}, "target": {s.Target}}
	for _, m := range []struct {
		method, path, body string
		headers            []string
		status             int
		word               string
	}{
		{"PUT", s.timer("a"), "x", []string{"timer-after", "1 hour", "timer-target-topic", s.Target}, 400,
			"bad-duration"},
		{"PUT", s.timer("a") + "?wait=written", "x", []string{"timer-at", "tomorrow", "timer-target-topic", s.Target},
			400, "bad-time"},
		{"PUT", s.timer("a"), "x", append(after, "elsewhere"), 403, "target-not-allowed"},
		{"PUT", s.timer(strings.Repeat("i", 513)), "x", append(after, s.Target), 400, "bad-key"},
		{"PUT", s.timer("a"), `{"cron":"61 * * * *","target":{"topic":"` + s.Target + `"}}`,
			[]string{"Content-Type", asJSON}, 400, "bad-cron"},
		{"DELETE", s.timer("a"), "", []string{"timer-if", "gone"}, 400, "bad-if"},
		{"POST", s.at("/timers"),
			`{"timers":[{"after":"1 hour"},{"id":"b","after":"1h","target":{"topic":"elsewhere"}}]}`,
			[]string{"Content-Type", asJSON}, 200, ""},
		{"POST", "/schedule", form.Encode(), []string{"Content-Type", "application/x-www-form-urlencoded"}, 400, ""},
	} {
		got := s.Call(m.method, m.path, m.body, m.headers...).Is(m.status, m.word)
		if strings.Contains(got.Text, `"request":`) {
			t.Errorf("%s %s is in the log: %s", m.method, m.path, got.Text)
		}
	}
	all, err := s.Cluster.Admin(t).ListEndOffsets(t.Context(), s.Requests, deadLetters(s.Requests))
	if err != nil || all.Error() != nil {
		t.Fatal(err, all.Error())
	}
	all.Each(func(o kadm.ListedOffset) {
		if o.Offset != 0 {
			t.Errorf("%d records are on %s/%d", o.Offset, o.Topic, o.Partition)
		}
	})
	if n := s.in.Metric("waterclock_dead_letters_total"); n != 0 {
		t.Errorf("%v dead letters are counted for the alert", n)
	}
	s.put("a", "timer-after", "1h").Is(201, "scheduled")
}

// Two IDs that are not UTF-8 stay two, from the call to the emission; as text in JSON, which has no characters for
// them, they are rejected. A compressed body is rejected, and one that is said to be so by a header of its own fires.
func TestBytesStayAsTheyAreOnABroker(t *testing.T) {
	t.Parallel()
	s := start(t)
	const gzip = "\x1f\x8b\x08"
	good := []string{"timer-after", "1s", "timer-target-topic", s.Target}
	for _, bad := range [][2]string{{"\xff", "\xfe"}, {`\ud800`, `\ud801`}} {
		s.post([]string{s.item(`"id":"a` + bad[0] + `"`), s.item(`"id":"a` + bad[1] + `"`)}).Is(
			400, "bad-request").Has("idBase64")
	}
	s.Call("PUT", s.timer("z"), gzip, append(good, "Content-Encoding", "gzip")...).Is(415, "bad-request")
	ids := []string{"a\xff", "a\xfe"}
	for _, id := range ids {
		s.Call("PUT", s.timer(id), gzip, append(good, "waterclock-pass", "content-encoding=gzip")...).Is(
			201, "scheduled")
	}
	out := byID(s.Out.WaitFor(len(ids), limit))
	for _, id := range ids {
		if r := out[id]; r == nil || string(r.Key) != id || string(r.Value) != gzip ||
			header(r, "content-encoding") != "gzip" {
			t.Errorf("%q fired as %v", id, r)
		}
	}
}
