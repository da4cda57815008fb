package repair

import (
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

// Remembered ends share the list of their partitions, because most steps of a lane write to the same ones.
func TestEndsShareTheirPartitions(t *testing.T) {
	k := &Markers{}
	list := func(ps ...int32) map[string][]int32 { return map[string][]int32{"a": ps, "b": {7}} }
	for i, parts := range []map[string][]int32{list(1, 2), list(1, 3), list(1, 2), list(1, 3), list(1)} {
		k.NoteEnd("id", Producer{int64(i), 0}, EndingCommit, parts)
	}
	same := func(i, j int) bool {
		return reflect.ValueOf(k.ends[i].parts).Pointer() == reflect.ValueOf(k.ends[j].parts).Pointer()
	}
	for _, row := range []struct {
		i, j int
		want bool
	}{{0, 2, true}, {1, 3, true}, {0, 1, false}, {0, 4, false}} {
		if same(row.i, row.j) != row.want {
			t.Errorf("ends %d and %d share one list: %v, want %v", row.i, row.j, !row.want, row.want)
		}
	}
}

// A coordinator says that it is writing the markers of a commit, and one is overdue. If this process knows that the
// transaction was committed, it writes that marker. If it knows that only from the coordinator, it does not: a
// restarted coordinator may have found the decision only in its own log.
func TestAMarkerIsWrittenForWhatIsKnown(t *testing.T) {
	for _, c := range []struct {
		name  string
		known Ending
		state string
		want  bool // a commit marker is written
	}{
		{"known", EndingCommit, "PrepareCommit", true},
		{"the coordinator's word alone", EndingUnknown, "PrepareCommit", false},
		{"the opposite of what is known", EndingAbort, "PrepareCommit", false},
		{"final", EndingUnknown, "CompleteCommit", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			fake, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
			to, p := timer.TopicPartition{Topic: "t", Partition: 0}, Producer{7, 3}
			fake.ControlKey(int16(kmsg.DescribeTransactions), func(r kmsg.Request) (kmsg.Response, error, bool) {
				fake.KeepControl()
				req := r.(*kmsg.DescribeTransactionsRequest)
				resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
				s := kmsg.NewDescribeTransactionsResponseTransactionState()
				s.TransactionalID, s.State, s.ProducerID, s.ProducerEpoch = req.TransactionalIDs[0], c.state,
					p.ID, p.Epoch+1
				resp.TransactionStates = append(resp.TransactionStates, s)
				return resp, nil, true
			})
			fake.ControlKey(int16(kmsg.DescribeProducers), func(r kmsg.Request) (kmsg.Response, error, bool) {
				fake.KeepControl()
				resp := r.ResponseKind().(*kmsg.DescribeProducersResponse)
				open := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
				open.ProducerID, open.ProducerEpoch, open.CurrentTxnStartOffset, open.CoordinatorEpoch = p.ID,
					int32(p.Epoch), 1, 0
				part := kmsg.NewDescribeProducersResponseTopicPartition()
				part.ActiveProducers = append(part.ActiveProducers, open)
				topic := kmsg.NewDescribeProducersResponseTopic()
				topic.Topic, topic.Partitions = to.Topic, append(topic.Partitions, part)
				resp.Topics = append(resp.Topics, topic)
				return resp, nil, true
			})
			written := 0
			fake.ControlKey(int16(kmsg.WriteTxnMarkers), func(r kmsg.Request) (kmsg.Response, error, bool) {
				fake.KeepControl()
				if m := r.(*kmsg.WriteTxnMarkersRequest).Markers[0]; m.Committed {
					written++
				}
				return r.ResponseKind(), nil, true
			})
			reg := prometheus.NewRegistry()
			k := NewMarkers(cl, targets.NewMetadata(cl, targets.MetadataOptions{}), "g", slog.New(slog.DiscardHandler),
				NewMetrics(reg))
			k.NoteEnd(TransactionalIDPrefix("g")+"x", p, c.known, map[string][]int32{to.Topic: {to.Partition}})
			k.doubtful[to] = &doubt{noted: map[Producer]*endedTxn{},
				awaited: map[Producer]time.Time{p: time.Now().Add(-time.Minute)}}
			if _, err := k.close(t.Context(), kadm.NewClient(cl), to, p); err != nil {
				t.Fatal(err)
			}
			if (written == 1) != c.want {
				t.Errorf("%d markers are written", written)
			}
			if n := gathered(t, reg)["waterclock_markers_written_total"]; n != float64(written) {
				t.Errorf("%v markers are counted, want %d", n, written)
			}
		})
	}
}
