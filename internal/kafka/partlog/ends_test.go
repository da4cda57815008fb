package partlog

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/timer"
)

// The ends tell an open transaction from a marker at the end; logs that do not exist are left out.
func TestEdges(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, on *kafkatest.Setup) {
		p := newPartition(on, nil)
		at := timer.TopicPartition{Topic: p.target.Topic}
		gone := timer.TopicPartition{Topic: p.target.Topic + "-gone"}
		wants := func(what string, want Ends) {
			t.Helper()
			await.Until(p.T, time.Minute, what, func() bool {
				leaders, err := Leaders(p.Ctx, p.cl, []string{at.Topic, gone.Topic}, 10*time.Second)
				if leader, known := leaders[at]; err != nil || !known ||
					EndsOf(p.Ctx, p.cl, leader, []timer.TopicPartition{at, gone}, 10*time.Second)[at] != want {
					return false
				}
				edges := EndsOf(p.Ctx, p.cl, NoLeader, []timer.TopicPartition{at, gone}, 10*time.Second)
				_, found := edges[gone]
				return edges[at] == want && !found
			})
		}
		wants("an empty log", Ends{})
		p.begin("a", "0").end(commit)
		wants("a marker at the end", Ends{2, 2})
		hanging := p.begin("hangs", "1")
		p.write(p.cl, "2", "3")
		wants("an open transaction", Ends{2, 5})
		hanging.end(abort)
		wants("it has ended", Ends{6, 6})
	})
}

// A log that is written to between the two questions does not look as if a transaction were open.
func TestEdgesOfABusyLog(t *testing.T) {
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	write := func() {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t"}).FirstErr(); err != nil {
			t.Error(err)
		}
	}
	write()
	c.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		c.SleepControl(write)
		return nil, nil, false
	})
	at := timer.TopicPartition{Topic: "t"}
	if e := EndsOf(t.Context(), cl, NoLeader, []timer.TopicPartition{at}, 10*time.Second)[at]; e.Held() || e.End < 2 {
		t.Errorf("%+v, want an end and no open transaction", e)
	}
}
