package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// A target that does not exist is shown as one whose timers become dead letters, after the time that the instance
// waits; then they do, and what was reviewed of them is not new, for as long as nothing else comes.
func TestTargetThatDoesNotExist(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	in, a := serve(t, rig.Config(t, c.Seeds(), requests), "")
	in.Ready(partitions, limit)
	schedule := func(id string) {
		a.call(t, "PUT", timersOf(requests)+"/"+id, "v", "timer-after", "1ms", "timer-target-topic",
			requests+"-none").is(t, 201, "scheduled")
	}
	schedule("lost-1")
	await.Until(t, limit, "the target is shown as one that does not exist", func() bool {
		for _, u := range a.call(t, "GET", "/v1/cluster", "").is(t, 200, "").body["unhealthyTargets"].([]any) {
			u := u.(map[string]any)
			// rig's
			if u["topic"] == requests+"-none" && u["partition"] == "unknown" && u["deadLetterAfterSeconds"] == 1.0 {
				return true
			}
		}
		return false
	})
	letters := "/v1/topics/" + requests + "/dead-letters"
	await.Until(t, limit, "its timer is a dead letter", func() bool {
		return strings.Contains(a.call(t, "GET", letters+"?reviewed=false", "").is(t, 200, "").text, "target-unknown")
	})
	list := a.call(t, "GET", letters, "").is(t, 200, "")
	a.call(t, "POST", letters+"/reviewed?position="+list.body["position"].(string), "").is(t, 200, "")
	isNew := func(want float64) {
		t.Helper()
		await.Until(t, limit, fmt.Sprintf("%v are new", want), func() bool {
			one := a.call(t, "GET", "/v1/dead-letters?topic="+requests, "").is(
				t, 200, "").body["topics"].([]any)[0].(map[string]any)
			n, _ := one["new"].(map[string]any)
			return n != nil && n["count"] == want && n["exact"] == true
		})
	}
	isNew(0)
	schedule("lost-2")
	isNew(1)
	if got := a.call(t, "GET", letters+"?reviewed=false", "").is(t, 200, ""); !strings.Contains(got.text, "lost-2") ||
		strings.Contains(got.text, "lost-1") {
		t.Error(got.text)
	}
	// The lag of the group, as Kafka's tools show it, is what is new, and markers behind it.
	lags, err := c.Admin(t).Lag(t.Context(), "group-of-"+requests+".reviewed")
	if err != nil {
		t.Fatal(err)
	}
	if lag := lags["group-of-"+requests+".reviewed"].Lag.Total(); lag < 1 || lag > 2 {
		t.Errorf("the lag is %d", lag)
	}
}
