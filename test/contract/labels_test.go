package contract

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	goclient "github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/test/rig"
)

// Labels are kept with a timer, whichever way it was scheduled and whatever happens to it. They are in all its events,
// choose it in lists and streams, and are in its emission only as the header that was asked for.
func TestLabels(t *testing.T) {
	t.Parallel()
	s := newSetup(t, kafkatest.Shared(t), 2, 1)
	cfg := s.policy(func(p *config.Policy) { p.Events = true })
	cfg.API = "127.0.0.1:0"
	api := s.serve(cfg, 2).API()
	told := kafkatest.Collect(t, s.Cluster, topics.Events(s.Requests))
	c, err := goclient.New(goclient.Options{URLs: []string{api.URL}})
	if err != nil {
		t.Fatal(err)
	}
	at := millis(time.Now().Add(time.Hour))
	request := func(id, labels string, headers ...string) *kgo.Record {
		return s.Request(id, "v", append([]string{"timer-at", at, "timer-target-topic", s.Target, "timer-labels",
			labels,
			"timer-labels-header", "tags", "tags", "old"}, headers...)...)
	}
	s.Send(request("kafka", "team=a, order=17"), request("kafka", "order=18,team=a", "timer-if", "changed"),
		request("kafka", "team=a,order=18", "timer-if", "changed"), s.Request("kafka", "", "timer-pause", "true"),
		request("kafka", "team=c", "timer-if", "absent"), s.Request("kafka", "", "timer-resume", "true"),
		request("gone", "team=b"), s.Request("gone", "", "timer-cancel", "true"), request("bad", "team"))
	api.Call("PUT", "/v1/topics/"+s.Requests+"/timers/http", `{"value":"v","after":"1h","target":{"topic":"`+s.Target+
		`"},"labels":{"team":"a","order":"17"}}`, "Content-Type", "application/json").Is(201, "scheduled")
	listed := func(f goclient.Filter) (ids []string) {
		for tm, err := range c.List(t.Context(), s.Requests, f, goclient.In(goclient.ByID)) {
			if err != nil {
				t.Fatal(err)
			}
			labels, _ := timer.LabelsOf(tm.Labels)
			ids = append(ids, tm.ID+" "+string(labels))
		}
		return ids
	}
	told.WaitFor(10, patience)
	if got := listed(goclient.Filter{Labels: "team=a"}); !slices.Equal(got, []string{"http order=17,team=a",
		"kafka order=18,team=a"}) {
		t.Errorf("team=a lists %q", got)
	}
	if got := listed(goclient.Filter{Labels: "order!=17"}); !slices.Equal(got, []string{"kafka order=18,team=a"}) {
		t.Errorf("order!=17 lists %q", got)
	}
	for _, id := range []string{"kafka", "http"} {
		s.Send(s.Request(id, "", "timer-trigger", "true"))
	}
	for id, r := range rig.Emissions(t, s.Out.WaitFor(2, patience)) {
		var tags []string
		for _, h := range r[0].Headers {
			if h.Key == "tags" || h.Key == "timer-labels" {
				tags = append(tags, string(h.Value))
			}
		}
		if want := map[string][]string{"kafka": {"order=18,team=a"}}[id]; !slices.Equal(tags, want) {
			t.Errorf("%s is emitted with %q, want %q", id, tags, want)
		}
	}
	got := make(map[string][]string)
	for _, r := range told.WaitFor(14, patience) {
		e, err := waterclock.ParseEvent(r.Record)
		if err != nil {
			t.Fatal(err)
		}
		labels, _ := timer.LabelsOf(e.Labels)
		got[e.ID] = append(got[e.ID], fmt.Sprint(e.Type, " ", labels))
	}
	for id, want := range map[string][]string{
		"kafka": {"scheduled order=17,team=a", "replaced order=18,team=a", "unchanged order=18,team=a",
			"paused order=18,team=a", "condition-not-met order=18,team=a", "resumed order=18,team=a",
			"triggered order=18,team=a", "fired order=18,team=a"},
		"http": {"scheduled order=17,team=a", "triggered order=17,team=a", "fired order=17,team=a"},
		"gone": {"scheduled team=b", "cancelled team=b"}, "bad": {"rejected "},
	} {
		if !slices.Equal(got[id], want) {
			t.Errorf("%s has the events %q, want %q", id, got[id], want)
		}
	}
	var streamed []string
	for e, err := range c.Watch(t.Context(), s.Requests, goclient.Events{Labels: "team!=a",
		Since: time.Now().Add(-time.Hour),
		Stop:  true}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.ID != "" {
			streamed = append(streamed, fmt.Sprint(e.ID, " ", e.Type))
		}
	}
	slices.Sort(streamed)
	if !slices.Equal(streamed, []string{"bad rejected", "gone cancelled", "gone scheduled"}) {
		t.Errorf("team!=a streams %q", streamed)
	}
}
