package partition

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/ownership"
)

// A request log was cut at offset 2 and has grown again, past the checkpoint at 4. The two offsets whose requests were
// settled before are counted.
func TestACutIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const cut, position, end = 2, 4, 5
		c, _, cl := kafkatest.Bubble(t, 1, "r")
		for range end {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "r"}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		c.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
			topic, one := kmsg.NewOffsetForLeaderEpochResponseTopic(),
				kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			topic.Topic, one.EndOffset, one.LeaderEpoch = "r", cut, 0
			topic.Partitions = append(topic.Partitions, one)
			resp.Topics = append(resp.Topics, topic)
			return resp, nil, true
		})
		reg := prometheus.NewRegistry()
		p, _ := newRooms(Options{
			Options: ownership.Options{
				Topics: &topics.Set{Request: topics.Topic{Name: "r", Partitions: 1}}, Client: cl, Now: time.Now,
				Logger: slog.New(slog.DiscardHandler),
			},
			Metrics: NewMetrics(reg),
		})
		p.o.Metrics.Serve("r")
		shows := func(want float64) {
			t.Helper()
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "waterclock_requests_cut_total" {
					if m := f.GetMetric()[0]; m.GetCounter().GetValue() != want || m.GetLabel()[0].GetValue() != "r" {
						t.Errorf("it shows %v, want %v offsets of topic r", m, want)
					}
					return
				}
			}
			t.Error("waterclock_requests_cut_total is not shown")
		}
		shows(0)
		if at, _, err := p.life.Input.ReadFrom(
			t.Context(), &wire.Checkpoint{Position: position, Epoch: 1}); err != nil || at != position {
			t.Fatalf("read from %d, %v, want %d", at, err, position)
		}
		shows(position - cut)
	})
}
