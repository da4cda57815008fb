package brokers

import (
	"crypto/rand"
	"strings"
	"testing"

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
	s := rig.NewSetup(t, kafkatest.Shared(t), 2, 1)
	letters := topics.DeadLetters(s.Requests)
	in, log := rig.ServeLogged(t, s.Config(), node.Options{})
	in.Ready(2, rig.Patience)
	dead, cl := kafkatest.Collect(t, s.Cluster, letters), s.Manual()
	large := make([]byte, size)
	_, _ = rand.Read(large) // it must not compress
	send := func(partition int32, id string, value []byte, every string) {
		r := s.Request(id, string(value), waterclock.HeaderEvery, every, waterclock.HeaderTargetTopic, s.Target)
		r.Partition = partition
		rig.Send(t, cl, r)
	}
	fires := func(what, id string, more int) {
		t.Helper()
		from := s.Emitted(id)
		await.Until(t, rig.Patience, what, func() bool { return s.Emitted(id) >= from+more })
	}
	send(0, "large", large, "500ms")
	send(1, "small", []byte("v"), "200ms")
	fires("both fire", "large", 2)
	fires("both fire", "small", 2)

	kafkatest.SetTopic(t, s.Adm, s.Changelog(), "max.message.bytes", less)
	kafkatest.SetTopic(t, s.Adm, letters, "max.message.bytes", less)
	await.Until(t, rig.Patience, "the partition says what it wants", func() bool {
		_, why := in.Readyz()
		return strings.Contains(why, s.Changelog()+"/0 takes no writes") && strings.Contains(why, "max.message.bytes")
	})
	acquired := len(log.Lines("acquiring the partition again"))
	from := s.Emitted("large")
	send(1, "bad", large[:size/2], "never")
	send(0, "behind", []byte("v"), "200ms")
	fires("the other partition goes on", "small", 30)
	if letter := dead.WaitFor(1, rig.Patience)[0]; letter.Header(waterclock.HeaderTruncated) != "value" {
		t.Errorf("the dead letter is not cut: %d bytes", len(letter.Value))
	}
	if n := s.Emitted("large"); n != from {
		t.Errorf("it fires %d times although it cannot be written", n-from)
	}
	if lines := log.Lines("acquiring the partition again"); len(lines) != acquired || acquired > 1 {
		t.Errorf("the partition was acquired again %d times: %v", len(lines), lines)
	}

	kafkatest.SetTopic(t, s.Adm, s.Changelog(), "max.message.bytes", "2097152")
	fires("it goes on", "large", 3)
	fires("so does what is behind it", "behind", 3)
	in.Ready(2, rig.Patience)
	rig.Emissions(t, s.Out.Records())
	for _, id := range []string{"large", "small", "behind"} {
		r := s.Cancel(id)
		r.Partition = map[string]int32{"small": 1}[id]
		rig.Send(t, cl, r)
	}
	s.Pending(0, in)
}
