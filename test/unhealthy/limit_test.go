package unhealthy

import (
	"crypto/rand"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// The service's own topics come to take less than a timer that is pending needs. Its partition stands
// still and says why; it is not acquired again and again, all others go on, and dead letters are cut
// to what their topic takes. Once the limit is what it was everything goes on, without a restart.
func TestOwnTopicsThatTakeLessThanBefore(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	const size, less = 300_000, "100000"
	c := kafkatest.Shared(t)
	adm := c.Admin(t)
	requests := c.CreateTopic(t, 2, nil)
	target := c.CreateTopic(t, 1, nil, requests+"-out")
	changelog, letters := topics.Changelog(requests), topics.DeadLetters(requests)
	in, log := rig.ServeLogged(t, rig.Config(t, c.Seeds(), requests), node.Options{})
	in.Ready(2, patience)
	out, dead := kafkatest.Collect(t, c, target), kafkatest.Collect(t, c, letters)
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	large := make([]byte, size)
	_, _ = rand.Read(large) // it must not compress
	send := func(partition int32, id string, value []byte, every string) {
		rig.Send(t, cl, &kgo.Record{Topic: requests, Partition: partition, Key: []byte(id), Value: value,
			Headers: []kgo.RecordHeader{
				{Key: waterclock.HeaderEvery, Value: []byte(every)},
				{Key: waterclock.HeaderTargetTopic, Value: []byte(target)},
			}})
	}
	count := func(id string) (n int) {
		for _, r := range out.Records() {
			if string(r.Key) == id {
				n++
			}
		}
		return n
	}
	fires := func(what, id string, more int) {
		t.Helper()
		from := count(id)
		await.Until(t, patience, what, func() bool { return count(id) >= from+more })
	}
	send(0, "large", large, "500ms")
	send(1, "small", []byte("v"), "200ms")
	fires("both fire", "large", 2)
	fires("both fire", "small", 2)

	kafkatest.SetTopic(t, adm, changelog, "max.message.bytes", less)
	kafkatest.SetTopic(t, adm, letters, "max.message.bytes", less)
	await.Until(t, patience, "the partition says what it wants", func() bool {
		_, why := in.Readyz()
		return strings.Contains(why, changelog+"/0 takes no writes") && strings.Contains(why, "max.message.bytes")
	})
	acquired := len(log.Lines("acquiring the partition again"))
	from := count("large")
	send(1, "bad", large[:size/2], "never")
	send(0, "behind", []byte("v"), "200ms")
	fires("the other partition goes on", "small", 30)
	if letter := dead.WaitFor(1, patience)[0]; letter.Header(waterclock.HeaderTruncated) != "value" {
		t.Errorf("the dead letter is not cut: %d bytes", len(letter.Value))
	}
	if n := count("large"); n != from {
		t.Errorf("it fires %d times although it cannot be written", n-from)
	}
	if lines := log.Lines("acquiring the partition again"); len(lines) != acquired || acquired > 1 {
		t.Errorf("the partition was acquired again %d times: %v", len(lines), lines)
	}

	kafkatest.SetTopic(t, adm, changelog, "max.message.bytes", "2097152")
	fires("it goes on", "large", 3)
	fires("so does what is behind it", "behind", 3)
	in.Ready(2, patience)
	seen := make(map[string]bool)
	for _, r := range out.Records() {
		event := r.Header(waterclock.HeaderEvent)
		if seen[event] {
			kafkatest.Inexact(t, "%s came twice", event)
		}
		seen[event] = true
	}
	for _, id := range []string{"large", "small", "behind"} {
		rig.Send(t, cl, &kgo.Record{Topic: requests, Partition: map[string]int32{"small": 1}[id], Key: []byte(id)})
	}
	await.Until(t, patience, "nothing is pending", func() bool { return in.Metric("waterclock_pending_timers") == 0 })
}
