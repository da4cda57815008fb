package api

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/caller"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// counted is what the API says of the dead letters of a topic.
func (s *setup) counted(topic string) map[string]any {
	s.Helper()
	return s.Get("/v1/dead-letters?topic="+topic).Is(200, "").Items("topics")[0]
}

// Dead letters of a request topic and of a fixed-delay topic are counted by reason as their logs have them, listed page
// by page from the newest on, shown, and sent again, corrected or by a job. A job sends none of them that would only
// become a new one.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	s := &setup{Setup: rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)}
	topic := s.Cluster.CreateTopic(t, delayed, nil, s.Requests+"-delayed")
	s = s.serve(func(cfg *config.Config) {
		cfg.Delay = []config.DelayTopic{{Topic: topic, Delay: time.Second, Target: s.Target}}
	})
	letters := s.at("/dead-letters")
	s.Get(letters).Is(200, "").Has(`{"deadLetters":[],"position":"0:0.0.0.0"}`)
	const n = 30
	for i := range n { // by a producer: the API does not write what is wrong
		cron := "61 * * * *"
		if i%3 == 0 {
			cron = "0 0 30 2 *"
		}
		s.Send(s.Request(fmt.Sprintf("bad-%02d", i), fmt.Sprint("payload ", i), "timer-cron", cron,
			"timer-target-topic", s.Target, "a", "1"), &kgo.Record{Topic: topic,
			Headers: []kgo.RecordHeader{{Key: "timer-at", Value: []byte("2026-11-22T09:00:00Z")}}})
	}
	isCounted := func(topic string, reasons map[string]float64) {
		t.Helper()
		await.Until(t, limit, "dead letters are counted", func() bool {
			one, got := s.counted(topic), map[string]float64{}
			for _, r := range one["reasons"].([]any) {
				r := r.(map[string]any)
				got[r["reason"].(string)] = r["lastDay"].(float64)
			}
			return one["exact"] == true && one["lastHour"] == float64(n) && reflect.DeepEqual(got, reasons)
		})
	}
	both, ineffective := map[string]float64{"bad-cron": 20, "cron-never-due": 10}, map[string]float64{"no-effect": n}
	isCounted(s.Requests, both)
	isCounted(topic, ineffective)

	seen := map[string]map[string]any{}
	s.Pages(letters+"?limit=7", func(page caller.Answer) {
		for _, one := range page.Items("deadLetters") {
			id := one["id"].(string)
			if seen[id] != nil {
				t.Fatalf("%s twice", id)
			}
			seen[id] = one
		}
	})
	if len(seen) != n {
		t.Errorf("%d letters on all pages, want %d", len(seen), n)
	}
	one := seen["bad-07"]
	at := fmt.Sprintf("%s/%.0f/%.0f", letters, one["partition"], one["offset"])
	delete(one, "reviewed") // a list has that
	whole := s.Get(at).Is(200, "").Has("bad-cron", "payload 7", s.Requests+"/")
	if !reflect.DeepEqual(whole.Body, one) {
		t.Errorf("alone it is %s, in the list %v", whole.Text, one)
	}
	s.Call("POST", at+"/resend", "").Is(400, "bad-cron")
	s.Call("POST", at+"/resend", `{"headers":[{"name":"timer-after","value":"1h"},
		{"name":"timer-target-topic","value":"`+s.Target+`"},{"name":"a","value":"2"}]}`,
		"Content-Type", asJSON).Is(201, "scheduled")
	s.Get(s.timer("bad-07")).Is(200, "").Has("payload 7", `{"name":"a","value":"2"}`)
	for _, method := range []string{"GET", "POST"} {
		path := map[string]string{"GET": "/0/999999", "POST": "/0/999999/resend"}[method]
		s.Call(method, letters+path, "").Is(404, "not-found")
	}
	s.Call("POST", letters+"/resend?dry-run=true&reason=bad-cron", "").Is(200, "").Has(`"count":20,"exact":true`)
	for path, seen := range map[string]float64{
		letters + "/resend?reason=bad-cron":                     20,
		"/v1/topics/" + topic + "/dead-letters/resend?all=true": n,
	} {
		if j := s.job(path); j["state"] != "done" || j["seen"] != seen || j["failed"] != seen {
			t.Errorf("%s: %v", path, j)
		}
	}
	isCounted(s.Requests, both)
	isCounted(topic, ineffective)
}

// Of several letters of an ID the newest wins, on whichever partitions of the topic of dead letters they are: without
// replace, where the first that is sent counts, and with it, where the last one does.
func TestTheNewestLetterOfAnIDWins(t *testing.T) {
	t.Parallel()
	s := start(t)
	cl := s.Cluster.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	const ids = 8
	written := time.Now().Add(-time.Minute)
	for round := range partitions { // each ID has a letter on each partition, the newest one on another for each
		for id := range ids {
			written = written.Add(10 * time.Millisecond)
			r := s.Request(fmt.Sprint("id-", id), fmt.Sprint("round ", round), "timer-after", "1h",
				"timer-target-topic", s.Target, "waterclock-reason", "target-not-allowed",
				"waterclock-source", fmt.Sprintf("%s/0/%d", s.Requests, round*ids+id))
			r.Topic, r.Partition, r.Timestamp = deadLetters(s.Requests), int32((round+id)%partitions), written
			rig.Send(t, cl, r)
		}
	}
	for _, replace := range []string{"false", "true"} {
		job := s.job(s.at("/dead-letters/resend?all=true&replace=" + replace))
		if job["state"] != "done" || job["seen"] != float64(ids*partitions) || job["failed"] != 0.0 {
			t.Errorf("replace=%s: %v", replace, job)
		}
		for id := range ids {
			at := s.timer(fmt.Sprint("id-", id))
			s.Get(at).Is(200, "").Has(fmt.Sprintf(`"text":"round %d"`, partitions-1))
			s.Call("DELETE", at, "").Is(200, "cancelled")
		}
	}
}

// A target that does not exist is shown as one whose timers become dead letters, after the time that the instance
// waits; then they do, and what was reviewed of them is not new, for as long as nothing else comes.
func TestTargetThatDoesNotExist(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.Target += "-none"
	s.put("lost-1", "timer-after", "1ms").Is(201, "scheduled")
	await.Until(t, limit, "the target is shown as one that does not exist", func() bool {
		for _, u := range s.Get("/v1/cluster").Is(200, "").Items("unhealthyTargets") {
			if u["topic"] == s.Target && u["partition"] == "unknown" && u["deadLetterAfterSeconds"] == 1.0 { // rig's
				return true
			}
		}
		return false
	})
	letters, isNew := s.at("/dead-letters"), s.at("/dead-letters?reviewed=false")
	await.Until(t, limit, "its timer is a dead letter", func() bool {
		return len(s.Get(isNew).Is(200, "").Items("deadLetters")) > 0
	})
	list := s.Get(letters).Is(200, "").Has("target-unknown")
	s.Call("POST", letters+"/reviewed?position="+list.Body["position"].(string), "").Is(200, "")
	count := func(want float64) {
		t.Helper()
		await.Until(t, limit, fmt.Sprintf("%v are new", want), func() bool {
			n, _ := s.counted(s.Requests)["new"].(map[string]any)
			return n != nil && n["count"] == want && n["exact"] == true
		})
	}
	count(0)
	s.put("lost-2", "timer-after", "1ms").Is(201, "scheduled")
	count(1)
	if all := s.Get(isNew).Is(200, "").Items("deadLetters"); len(all) != 1 || all[0]["id"] != "lost-2" {
		t.Error(all)
	}
	// The lag of the group, as Kafka's tools show it, is what is new, and markers behind it.
	group := "group-of-" + s.Requests + ".reviewed"
	lags, err := s.Cluster.Admin(t).Lag(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	if lag := lags[group].Lag.Total(); lag < 1 || lag > 2 {
		t.Errorf("the lag is %d", lag)
	}
}

// TestMarksEndWithTheirTopic: what was reviewed is stored as offsets of a group, which brokers forget when the topic is
// deleted. So a topic that is recreated has no marks, and its dead letters are new.
func TestMarksEndWithTheirTopic(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Shared(t)
	letters, others := cluster.CreateTopic(t, 3, nil), cluster.CreateTopic(t, 3, nil)
	admin, group := cluster.Admin(t), "group-of-"+letters+".reviewed"
	marks := make(kadm.Offsets)
	marks.Add(kadm.Offset{Topic: letters, Partition: 2, At: 7, LeaderEpoch: -1, Metadata: `{"by":"a"}`})
	marks.Add(kadm.Offset{Topic: others, Partition: 1, At: 1, LeaderEpoch: -1})
	await.Until(t, limit, "the marks are set", func() bool {
		set, err := admin.CommitOffsets(t.Context(), group, marks)
		return err == nil && set.Ok()
	})
	are := func() string {
		found, err := admin.FetchOffsets(t.Context(), group)
		if err != nil {
			return err.Error()
		}
		var list []string
		for _, o := range found.Offsets().Sorted() {
			list = append(list, fmt.Sprint(o.Topic, "/", o.Partition, " at ", o.At))
		}
		return strings.Join(list, ", ")
	}
	if _, err := admin.DeleteTopic(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	left := others + "/1 at 1"
	// The coordinator hears of a deletion with the cluster's metadata, on a busy machine most of a minute later.
	await.Until(t, 5*time.Minute, "the marks are gone", func() bool { return are() == left })
	cluster.CreateTopic(t, 3, nil, letters)
	if got := are(); got != left {
		t.Errorf("after it was recreated: %s", got)
	}
}
