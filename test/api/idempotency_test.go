package api

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// A POST that is made again with its Idempotency-Key fires nothing again once its timers have fired:
// asked of the instance that has taken it, of another one, and after all were stopped and started
// with empty directories, for what is remembered is in the log. With another body the key is an error.
func TestIdempotencyBeyondTheFiring(t *testing.T) {
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	target := c.CreateTopic(t, 1, nil, kafkatest.Topic(t)+"-target")
	fired := kafkatest.Collect(t, c, target)
	cfg := rig.Config(t, c.Seeds(), requests)
	one, a := serve(t, cfg, "")
	one.Ready(partitions, limit)
	const n = 20
	body := func(value string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`{"value":"%s-%d","after":"100ms","target":{"topic":"%s"}}`,
				value, i, target))
		}
		return `{"timers":[` + strings.Join(all, ",") + `]}`
	}
	post := func(in *asked, value string) answer {
		return in.call(t, "POST", timersOf(requests), body(value), "Content-Type", "application/json",
			"Idempotency-Key", "one")
	}
	if got := post(a, "v").is(t, 200, ""); strings.Count(got.text, `"status":201`) != n {
		t.Fatal(got.text)
	}
	fired.WaitFor(n, limit)
	same := func(in *asked) {
		t.Helper()
		await.Until(t, limit, "the call is the same", func() bool {
			got := post(in, "v")
			return got.status == 200 && strings.Count(got.text, `"unchanged"`) == n &&
				strings.Count(got.text, `"remembered"`) == n
		})
		post(in, "other").is(t, 422, "idempotency-key-reused")
	}
	same(a)
	if err := one.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(cfg.DataDir); err != nil {
		t.Fatal(err)
	}
	other := rig.Config(t, c.Seeds(), requests)
	two, b := serve(t, other, "")
	two.Ready(partitions, limit)
	same(b)
	if page := b.call(t, "GET", timersOf(requests), "").is(t, 200, ""); len(page.body["timers"].([]any)) != 0 {
		t.Errorf("what has fired is listed: %s", page.text)
	}
	// Whoever would have fired again would have done so before this one.
	last := b.call(t, "PUT", timersOf(requests)+"/last", "last", "timer-after", "200ms", "timer-target-topic", target)
	last.is(t, 201, "scheduled")
	all := fired.WaitFor(n+1, limit)
	if len(all) != n+1 || string(all[n].Value) != "last" {
		kafkatest.Inexact(t, "%d have fired, want %d", len(all), n+1)
	}
}
