package api

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// A timer made over HTTP is the one that is made over Kafka: the same emission byte for byte,
// the same dead letter reason for reason.
func TestTheSameOverHTTP(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, 3, nil, kafkatest.Topic(t)+"-target")
	in, a := serve(t, rig.Config(t, c.Seeds(), requests), "")
	in.Ready(partitions, limit)
	cl := c.Client(t)

	due := time.Now().Add(2 * time.Second).UnixMilli()
	rig.Send(t, cl, &kgo.Record{Topic: requests, Key: []byte("over-kafka"), Value: []byte("v\x00\xff"),
		Headers: []kgo.RecordHeader{
			{Key: "timer-at", Value: fmt.Append(nil, due)}, {Key: "timer-target-topic", Value: []byte(target)},
			{Key: "timer-target-key", Value: []byte("k")},
			{Key: "b", Value: []byte("2=2")}, {Key: "a", Value: []byte("1")},
		}})
	put := a.call(t, "PUT", timersOf(requests)+"/over-http", "v\x00\xff", "timer-at", fmt.Sprint(due),
		"timer-target-topic", target, "timer-target-key", "k",
		"waterclock-pass", "b=2=2", "waterclock-pass", "a=1").is(t, 201, "scheduled")
	source := strings.Trim(put.header.Get("ETag"), `"`)
	if want := fmt.Sprintf("%s/%.0f/%.0f", requests, put.body["partition"], put.body["offset"]); source != want {
		t.Errorf("ETag %s, want %s", source, want)
	}

	out := collect(t, c, target, 2)
	k, h := out["over-kafka"], out["over-http"]
	if string(k.Key) != string(h.Key) || string(k.Value) != string(h.Value) || k.Partition != h.Partition {
		t.Errorf("over Kafka %q %q on %d, over HTTP %q %q on %d", k.Key, k.Value, k.Partition, h.Key, h.Value,
			h.Partition)
	}
	show := func(r *kgo.Record) (text string) {
		for _, header := range r.Headers {
			if !strings.HasPrefix(header.Key, "waterclock-") || header.Key == "waterclock-due" {
				text += fmt.Sprintf("%s=%s ", header.Key, header.Value)
			}
		}
		return text
	}
	if show(k) != show(h) {
		t.Errorf("headers over Kafka %s, over HTTP %s", show(k), show(h))
	}
	if got := header(h, "waterclock-source"); got != source {
		t.Errorf("source %s, was told %s", got, source)
	}

	// The problem is the dead letter that the same request becomes over Kafka.
	bad := a.call(t, "PUT", timersOf(requests)+"/bad", "x", "timer-at", "tomorrow", "timer-target-topic", target).is(
		t, 400, "bad-time")
	rig.Send(t, cl, &kgo.Record{Topic: requests, Key: []byte("bad"), Headers: []kgo.RecordHeader{
		{Key: "timer-at", Value: []byte("tomorrow")}, {Key: "timer-target-topic", Value: []byte(target)},
	}})
	letter := collect(t, c, requests+".waterclock.dead-letters", 1)["bad"]
	if reason, detail := header(letter, "waterclock-reason"),
		header(letter, "waterclock-detail"); reason != bad.body["reason"] || detail != bad.body["detail"] {
		t.Errorf("dead letter %s %s, problem %s", reason, detail, bad.text)
	}
	if bad.body["request"] != nil {
		t.Errorf("a request that is not written is in the log: %s", bad.text)
	}
}

// A mistake over HTTP, by a form of the console, or in a list writes nothing to the request topic, makes no dead
// letter, and raises no alert: no metric counts it. The last words of an owner with other settings are a dead letter
// as ever.
func TestMistakesAreNotWritten(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-target")
	cfg := rig.Config(t, c.Seeds(), requests)
	cfg.Targets, cfg.Console = []string{target}, true
	in, a := serve(t, cfg, "")
	in.Ready(partitions, limit)
	one := timersOf(requests) + "/a"
	const asJSON = "application/json"
	for _, m := range []struct {
		method, path, body string
		headers            []string
		status             int
		word               string
	}{
		{"PUT", one, "x", []string{"timer-after", "1 hour", "timer-target-topic", target}, 400, "bad-duration"},
		{"PUT", one + "?wait=written", "x", []string{"timer-at", "tomorrow", "timer-target-topic", target}, 400,
			"bad-time"},
		{"PUT", one, "x", []string{"timer-afer", "1h", "timer-target-topic", target}, 400, "unknown-header"},
		{"PUT", one, "x", []string{"timer-after", "1h", "timer-target-topic", "elsewhere"}, 403, "target-not-allowed"},
		{"PUT", one, "x", []string{"timer-after", "1h"}, 400, "no-target"},
		{"PUT", timersOf(requests) + "/" + strings.Repeat("i", 513), "x", []string{"timer-after", "1h",
			"timer-target-topic", target}, 400, "bad-key"},
		{"PUT", one, `{"cron":"61 * * * *","target":{"topic":"` + target + `"}}`, []string{"Content-Type", asJSON},
			400, "bad-cron"},
		{"DELETE", one, "", []string{"timer-if", "gone"}, 400, "bad-if"},
		{"POST", timersOf(requests),
			`{"timers":[{"after":"1 hour"},{"id":"b","after":"1h","target":{"topic":"elsewhere"}}]}`,
			[]string{"Content-Type", asJSON}, 200, ""},
		{"POST", "/schedule", url.Values{"topic": {requests}, "id": {"a"}, "after": {"1 hour"},
			"target": {target}}.Encode(),
			[]string{"Content-Type", "application/x-www-form-urlencoded"}, 400, ""},
	} {
		got := a.call(t, m.method, m.path, m.body, m.headers...).is(t, m.status, m.word)
		if strings.Contains(got.text, `"request":`) {
			t.Errorf("%s %s is in the log: %s", m.method, m.path, got.text)
		}
	}
	adm := kadm.NewClient(c.Client(t))
	ends := func(topic string) (n int64) {
		t.Helper()
		all, err := adm.ListEndOffsets(t.Context(), topic)
		if err != nil || all.Error() != nil {
			t.Fatalf("list ends of %s: %v %v", topic, err, all.Error())
		}
		all.Each(func(o kadm.ListedOffset) { n += o.Offset })
		return n
	}
	if n := ends(requests); n != 0 {
		t.Errorf("%d records are in the request topic", n)
	}
	if n := ends(requests + ".waterclock.dead-letters"); n != 0 {
		t.Errorf("%d records are in the topic of dead letters", n)
	}
	if n := in.Metric("waterclock_dead_letters_total"); n != 0 {
		t.Errorf("%v dead letters are counted for the alert", n)
	}
	a.call(t, "PUT", one, "x", "timer-after", "1h", "timer-target-topic", target).is(t, 201, "scheduled")
}

// Two IDs that are not UTF-8 stay two, from the call to the emission; as text in JSON, which has no characters for
// them, they are rejected. A compressed body is rejected, and one that is said to be so by a header of its own fires.
func TestBytesStayAsTheyAreOnABroker(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-target")
	in, a := serve(t, rig.Config(t, c.Seeds(), requests), "")
	in.Ready(partitions, limit)
	good := []string{"timer-after", "1s", "timer-target-topic", target}
	const gzip = "\x1f\x8b\x08"
	list := fmt.Sprintf(
		`{"timers":[{"id":"a%%s","after":"1s","target":{"topic":%q}},{"id":"a%%s","after":"1s","target":{"topic":%[1]q}}]}`, target)
	for _, text := range []string{fmt.Sprintf(list, "\xff", "\xfe"), fmt.Sprintf(list, `\ud800`, `\ud801`)} {
		got := a.call(t, "POST", timersOf(requests), text, "Content-Type", "application/json").is(t, 400, "bad-request")
		if !strings.Contains(got.text, "idBase64") {
			t.Error(got.text)
		}
	}
	a.call(t, "PUT", timersOf(requests)+"/z", gzip, append([]string{"Content-Encoding", "gzip"}, good...)...).is(
		t, 415, "bad-request")
	for _, id := range []string{"a%ff", "a%fe"} {
		a.call(t, "PUT", timersOf(requests)+"/"+id, gzip,
			append([]string{"waterclock-pass", "content-encoding=gzip"}, good...)...).is(t, 201, "scheduled")
	}
	out := collect(t, c, target, 2)
	for _, id := range []string{"a\xff", "a\xfe"} {
		if r := out[id]; r == nil || string(r.Key) != id || string(r.Value) != gzip ||
			header(r, "content-encoding") != "gzip" {
			t.Errorf("%q fired as %v", id, r)
		}
	}
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// collect reads n committed records of a topic, by timer ID.
func collect(t *testing.T, c *kafkatest.Cluster, topic string, n int) map[string]*kgo.Record {
	t.Helper()
	cl := c.Client(t, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	all := make(map[string]*kgo.Record)
	await.Until(t, limit, fmt.Sprint(n, " records on ", topic), func() bool {
		cl.PollRecords(t.Context(), 1).EachRecord(func(r *kgo.Record) {
			id := header(r, "waterclock-id")
			if id == "" {
				id = string(r.Key)
			}
			all[id] = r
		})
		return len(all) >= n
	})
	return all
}

// Asked of either of two instances the answer is the same, and what one has heard to be
// decided the other shows.
func TestTwoInstances(t *testing.T) {
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-target")
	key := keyFile(t)
	_, _, a, b := two(t, c, requests, key)
	from := timersOf(requests)
	both := []*asked{a, b}
	steady := func(who *asked, method, path, body string, headers ...string) answer {
		t.Helper()
		var got answer
		await.Until(t, limit, method+" "+path+" is answered", func() bool {
			got = who.call(t, method, path, body, headers...)
			return got.status != 503
		})
		return got
	}
	const timers = 40
	for i := range timers {
		id := fmt.Sprintf("/id-%02d", i)
		steady(both[i%2], "PUT", from+id, "v", "timer-after", "1h", "timer-target-topic", target).is(
			t, 201, "scheduled")
		got := both[(i+1)%2].call(t, "GET", from+id, "").is(t, 200, "")
		if again := both[i%2].call(t, "GET", from+id, "").is(t, 200, ""); again.text != got.text {
			t.Fatalf("one says %s, the other %s", got.text, again.text)
		}
	}
	for _, path := range []string{"/count", "?limit=7", "?order=id&limit=1000", "?prefix=id-1"} {
		x, y := a.call(t, "GET", from+path, "").is(t, 200, ""), b.call(t, "GET", from+path, "").is(t, 200, "")
		if x.text != y.text {
			t.Errorf("%s: one says %s, the other %s", path, x.text, y.text)
		}
	}
	if n := a.call(t, "GET", from+"/count", "").body["count"]; n != float64(timers) {
		t.Errorf("%v timers", n)
	}
	for i := range timers {
		id := fmt.Sprintf("/id-%02d", i)
		both[i%2].call(t, "POST", from+id+"/pause", "").is(t, 200, "paused")
		both[(i+1)%2].call(t, "DELETE", from+id, "", "If-Match", both[i%2].call(t, "GET", from+id, "").header.Get(
			"ETag")).is(t, 200, "cancelled")
		both[i%2].call(t, "GET", from+id, "").is(t, 404, "not-found")
	}
	// What instances ask each other nobody else may, whatever it claims.
	ask := "/internal/v1/ask?call=" + base64.RawURLEncoding.EncodeToString([]byte(`{"kind":"status","partition":0}`))
	a.call(t, "GET", ask, "").is(t, 403, "")
	a.call(t, "GET", ask, "", "Waterclock-Forward", fmt.Sprintf("v1.%d.AAAAAAAAAAAAAAAAAAAAAA.YW5vbnltb3Vz.%s.%[2]s",
		time.Now().UnixMilli(), strings.Repeat("A", 43))).is(t, 401, "")
	a.call(t, "POST", "/internal/v1/ask", `{"kind":"write"}`).is(t, 403, "")
	cluster := b.call(t, "GET", "/v1/cluster", "").is(t, 200, "")
	if n := strings.Count(cluster.text, `"state":"live"`); n != partitions {
		t.Errorf("%d live partitions: %s", n, cluster.text)
	}
	if in := cluster.body["instances"].([]any); len(in) != 2 || strings.Contains(cluster.text, `"problem"`) {
		t.Error(cluster.text)
	}
}
