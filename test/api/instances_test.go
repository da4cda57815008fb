package api

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/caller"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// Asked of either of two instances the answer is the same, and what one has heard to be decided the other shows.
func TestTwoInstances(t *testing.T) {
	a, b := two(t, withKey(t))
	both := []*setup{a, b}
	id := func(i int) string { return fmt.Sprintf("id-%02d", i) }
	const timers = 40
	for i := range timers {
		await.Until(t, limit, "the PUT is answered", func() bool {
			got := both[i%2].put(id(i), "timer-after", "1h")
			return got.Status != 503 && got.Is(201, "scheduled").Status == 201
		})
		got := both[(i+1)%2].Get(a.timer(id(i))).Is(200, "")
		if again := both[i%2].Get(a.timer(id(i))).Is(200, ""); again.Text != got.Text {
			t.Fatalf("one says %s, the other %s", got.Text, again.Text)
		}
	}
	for _, query := range []string{"/count", "?limit=7", "?order=id&limit=1000", "?prefix=id-1"} {
		x, y := a.Get(a.at("/timers"+query)).Is(200, ""), b.Get(a.at("/timers"+query)).Is(200, "")
		if x.Text != y.Text {
			t.Errorf("%s: one says %s, the other %s", query, x.Text, y.Text)
		}
	}
	a.Get(a.at("/timers/count")).Has(fmt.Sprintf(`"count":%d`, timers))
	for i := range timers {
		one, other := both[i%2], both[(i+1)%2]
		one.Call("POST", a.timer(id(i))+"/pause", "").Is(200, "paused")
		tag := one.Get(a.timer(id(i))).Header.Get("ETag")
		other.Call("DELETE", a.timer(id(i)), "", "If-Match", tag).Is(200, "cancelled")
		one.Get(a.timer(id(i))).Is(404, "not-found")
	}
	// What instances ask each other nobody else may, whatever it claims.
	ask := "/internal/v1/ask?call=" + base64.RawURLEncoding.EncodeToString([]byte(`{"kind":"status","partition":0}`))
	a.Get(ask).Is(403, "")
	a.Get(ask, "Waterclock-Forward", fmt.Sprintf("v1.%d.AAAAAAAAAAAAAAAAAAAAAA.YW5vbnltb3Vz.%s.%[2]s",
		time.Now().UnixMilli(), strings.Repeat("A", 43))).Is(401, "")
	a.Call("POST", "/internal/v1/ask", `{"kind":"write"}`).Is(403, "")
	cluster := b.Get("/v1/cluster").Is(200, "")
	if strings.Count(cluster.Text, `"state":"live"`) != partitions || len(cluster.Items("instances")) != 2 ||
		strings.Contains(cluster.Text, `"problem"`) {
		t.Error(cluster.Text)
	}
}

// A caller that makes one call after the other waits for the firing interval in less than half of its calls, also if it
// asks another instance than the owner. The interval is longer than a call takes on a busy machine.
func TestALoneCallerIsAnsweredAtOnce(t *testing.T) {
	const calls, interval = 11, config.MaxFiringInterval
	a, b := two(t, withKey(t), func(cfg *config.Config) { cfg.FiringInterval = interval })
	for name, s := range map[string]*setup{"one": a, "other": b} {
		var took []time.Duration
		for i := range calls {
			id := fmt.Sprint(name, i) // on all partitions, so half of them are the other instance's
			begin := time.Now()
			s.put(id, "timer-after", "1h").Is(201, "scheduled")
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		t.Logf("%s: %v", name, took)
		if median := took[calls/2]; median >= interval/2 {
			t.Errorf("half of the calls took %v and more", median)
		}
	}
}

// A thousand timers in one call, listed page by page while the other instance answers for half
// of them; a job cancels those of a prefix and spares what is scheduled again meanwhile.
func TestManyTimers(t *testing.T) {
	a, b := two(t, withKey(t))
	const timers = 1000
	var items []string
	due := time.Now().Add(time.Hour).UnixMilli()
	for i := range timers {
		items = append(items, fmt.Sprintf(`{"id":"%c-%04d","value":"v","at":"%d","target":{"topic":"%s"}}`, 'a'+i%2, i,
			due+int64(i%10), a.Target))
	}
	await.Until(t, limit, "all are scheduled", func() bool {
		got := a.post(items).Is(200, "")
		return strings.Count(got.Text, `"status":20`) >= timers && !strings.Contains(got.Text, `"problem"`)
	})
	for _, order := range []string{"due", "id"} {
		seen, cursor := map[any]bool{}, ""
		for i := 0; i == 0 || cursor != ""; i++ {
			page := []*setup{a, b}[i%2].Get(a.at("/timers?limit=77&order="+order+"&cursor="+cursor)).Is(200, "")
			for _, item := range page.Items("timers") {
				if seen[item["id"]] {
					t.Fatalf("%s twice", item["id"])
				}
				seen[item["id"]] = true
			}
			cursor, _ = page.Body["cursor"].(string)
		}
		if len(seen) != timers {
			t.Errorf("by %s: %d timers, want %d", order, len(seen), timers)
		}
	}
	job := b.Call("POST", a.at("/timers/cancel?prefix=a-&rate=1000"), "").Is(202, "").Header.Get("Location")
	a.put("a-0998", "timer-after", "2h")
	await.Until(t, limit, "the job is done", func() bool { return b.Get(job).Body["state"] != "running" })
	done := b.Get(job).Is(200, "").Body
	changed, spared := done["changed"].(float64), done["spared"].(float64)
	if done["state"] != "done" || done["failed"] != 0.0 || changed+spared < timers/2-1 {
		t.Errorf("job %v", done)
	}
	left := a.Get(a.at("/timers/count")).Is(200, "").Body["count"].(float64)
	if want := timers - changed; left != want && left != want+1 { // one more if it was cancelled before it came
		t.Errorf("%v timers are left; job %v", left, done)
	}
	a.Get("/v1/topics", "Sec-Fetch-Site", "cross-site", "Origin", "https://elsewhere.example").Is(403, "cross-origin")
	for metric, labels := range map[string][]string{
		"waterclock_api_calls_total": {"status", "200"}, "waterclock_api_call_seconds": nil,
		"waterclock_api_refused_total": {"reason", "cross-origin"},
	} {
		if a.in.Metric(metric, labels...) == 0 {
			t.Errorf("%s %v is 0", metric, labels)
		}
	}
}

// Without a key nothing is forwarded: the answer names the instance that is to be asked, or says that it has no API.
// What need not be decided is written, from anywhere. When the other instance ends, one answers for all.
func TestWhatAnotherInstanceHas(t *testing.T) {
	const timers = 20
	for _, api := range []bool{true, false} {
		t.Run(fmt.Sprintf("API %t", api), func(t *testing.T) {
			s := &setup{Setup: rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)}
			other := &setup{Setup: s.Setup}
			words, key := "has no API", withKey(t)
			if api {
				other = s.serve()
				words, key = other.URL, func(*config.Config) {}
			} else {
				other.in = rig.Serve(t, s.Config(), node.Options{})
			}
			other.in.Ready(partitions, limit)
			s = other.serve(key)
			share(t, &s.in.Web, &other.in.Web)
			elsewhere := 0
			for i := range timers {
				id := fmt.Sprint("id-", i)
				got := s.put(id, "timer-after", "1h")
				if got.Status == 201 {
					continue
				}
				elsewhere++
				got.Is(421, "elsewhere").Has(words)
				s.Get(s.timer(id)).Is(421, "elsewhere").Has(words)
				s.Call("PUT", s.timer(id)+"?wait=written", "v", "timer-after", "1h", "timer-target-topic",
					s.Target).Is(202, "written")
			}
			if elsewhere == 0 || elsewhere == timers {
				t.Fatalf("%d of %d timers are the other's", elsewhere, timers)
			}
			for _, path := range []string{"", "/count"} { // they answer for the rest
				if got := s.Get(s.at("/timers"+path)).Is(200, "").Has(words); len(got.Items("missing")) == 0 {
					t.Errorf("%q does not name what is missing: %s", path, got.Text)
				}
			}
			s.Get(s.at("/timers/count")).Has(fmt.Sprintf(`"count":%d`, timers-elsewhere))
			s.Call("POST", s.at("/timers/cancel?all=true&dry-run=true"), "").Is(421, "elsewhere")
			s.Get("/v1/cluster").Is(200, "").Has(words)
			if err := other.in.Stop(); err != nil {
				t.Fatal(err)
			}
			s.in.Ready(partitions, limit)
			await.Until(t, limit, "what was only written is decided too", func() bool {
				return s.Get(s.at("/timers/count")).Body["count"] == float64(timers)
			})
		})
	}
}

// process starts an instance in a process of its own, and may be asked before it is ready.
func (s *setup) process(key string, more ...string) (*rig.Process, *caller.Caller) {
	s.Helper()
	addr := rig.FreeAddr(s)
	more = append(more, "--api", addr, "--api-key-file", key)
	p := rig.Start(s, rig.Arguments(s.Cluster.Seeds(), s.Requests, s.TempDir(), more...)...)
	return p, caller.New(s, "http://"+addr)
}

// An owner is killed (SIGKILL). Asked of the other, who has owned nothing of it, each call is
// answered as before or with 503 and when to ask again: never that a timer is not there, and
// what was said to be scheduled is there in the end.
func TestTheOwnerIsKilled(t *testing.T) {
	t.Parallel()
	s := &setup{Setup: rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)}
	key := keyFile(t)
	one, first := s.process(key)
	one.Ready(partitions, limit)
	other, second := s.process(key)
	share(t, &one.Web, &other.Web)
	const timers = 50
	s.Caller = first
	await.Until(t, limit, "timers are scheduled", func() bool {
		for i := range timers {
			if got := s.put(fmt.Sprint("before-", i), "timer-after", "1h"); got.Status != 200 && got.Status != 201 {
				return false
			}
		}
		return true
	})

	s.Caller = second
	one.Kill()
	scheduled := map[string]bool{}
	refused, round := 0, 0
	await.Until(t, limit, "all timers can be asked for", func() bool {
		moving := 0
		for i := range timers {
			got := s.Get(s.timer(fmt.Sprint("before-", i)))
			if got.Status == http.StatusServiceUnavailable && got.Header.Get("Retry-After") != "" {
				moving++
				continue
			}
			got.Is(200, "")
		}
		id := fmt.Sprint("after-", round)
		switch got := s.put(id, "timer-after", "1h"); got.Status {
		case 201, 202:
			scheduled[id] = true
		default:
			got.Is(503, "")
		}
		refused += moving
		round++
		return moving == 0 && round > 4 && other.Metric("waterclock_partitions", "state", "live") == partitions
	})
	if refused == 0 {
		t.Error("no call was answered 503: nothing was seen of the move")
	}
	for id := range scheduled {
		s.Get(s.timer(id)).Is(200, "")
	}
	if n := s.Get(s.at("/timers/count")).Is(200, "").Body["count"].(float64); int(n) < timers+len(scheduled) {
		t.Errorf("%v timers, want %d and %d", n, timers, len(scheduled))
	}
}

// An owner is killed (SIGKILL) while timers are scheduled by calls with an Idempotency-Key. Whatever a call was
// answered, it is made again until it was answered in full, and once more: each timer has the same ID every time, and
// fires once.
func TestACallIsRepeatedWhenAnOwnerIsKilled(t *testing.T) {
	t.Parallel()
	s := &setup{Setup: rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)}
	key := keyFile(t)
	one, _ := s.process(key)
	one.Ready(partitions, limit)
	other, second := s.process(key)
	share(t, &one.Web, &other.Web)
	s.Caller = second
	const calls, each = 10, 10
	again := 0
	ids := map[string]string{}
	done := func(call int) bool {
		var items []string
		for i := range each {
			items = append(items,
				fmt.Sprintf(`{"value":"%d-%d","after":"50ms","target":{"topic":%q}}`, call, i, s.Target))
		}
		got := s.post(items, "Idempotency-Key", fmt.Sprint("call ", call))
		results, known := got.Items("results"), 0
		for i, r := range results {
			value, id := fmt.Sprintf("%d-%d", call, i), r["id"].(string)
			if ids[value] == "" {
				ids[value] = id
			}
			if ids[value] != id {
				t.Fatalf("%s has the ID %s, and had %s", value, id, ids[value])
			}
			if r["status"] == 200.0 || r["status"] == 201.0 {
				known++
			}
		}
		if got.Status != http.StatusOK || known != each {
			again++
		}
		return got.Status == http.StatusOK && known == each
	}
	killed := make(chan struct{})
	for call := range calls {
		if call == calls/2 {
			go func() { defer close(killed); one.Kill() }()
		}
		for range 2 {
			await.Until(t, limit, "the call is answered", func() bool { return done(call) })
		}
	}
	<-killed
	for call := range calls {
		await.Until(t, limit, "the call is answered as before", func() bool { return done(call) })
	}
	t.Logf("%d calls were made again", again)
	rig.Complete(t, s.Out, calls*each)
}
