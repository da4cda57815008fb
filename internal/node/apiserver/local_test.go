package apiserver

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

// A caller waits no longer than its context for a broker that has accepted a request and never answers: even the end of
// the context does not make the producer give up the request.
func TestProduceEndsWithItsContext(t *testing.T) {
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "r"))
	sent := make(chan struct{}, 100)
	c.ControlKey(kmsg.Produce.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		sent <- struct{}{}
		return nil, errors.New("the connection breaks"), true
	})
	cl := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RecordDeliveryTimeout(time.Second))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan []route.Written, 1)
	go func() {
		done <- (&local{producer: cl}).Produce(ctx, timer.TopicPartition{Topic: "r"},
			[]route.Request{{ID: []byte("a")}})
	}()
	<-sent
	cancel()
	select {
	case w := <-done:
		if len(w) != 1 || w[0].Offset != -1 || !w[0].Unknown || w[0].Problem == "" {
			t.Errorf("%+v", w)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for the broker forever")
	}
}

// A record that reached a broker is never reported as not written.
func TestWritten(t *testing.T) {
	for name, c := range map[string]struct {
		offset  int64
		err     error
		unknown bool
	}{
		"written":          {7, nil, false},
		"sent twice":       {-1, nil, true},
		"no answer":        {-1, context.DeadlineExceeded, true},
		"a broker is away": {-1, kerr.NotLeaderForPartition, true},
		"refused":          {-1, kerr.TopicAuthorizationFailed, false},
	} {
		if w := writtenAt(&kgo.Record{Offset: c.offset}, c.err); w.Offset != c.offset || w.Unknown != c.unknown ||
			(w.Problem == "") != (c.offset >= 0) {
			t.Errorf("%s: %+v", name, w)
		}
	}
}

// A partition whose requests get no answer does not keep others' from being written, however many there are.
func TestPartitionsDoNotHoldUpEachOther(t *testing.T) {
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "r"))
	for p := range int32(2) {
		if err := c.MoveTopicPartition("r", p, p); err != nil {
			t.Fatal(err)
		}
	}
	c.ControlKey(kmsg.Produce.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if c.CurrentNode() == 0 {
			return nil, errors.New("the connection breaks"), true
		}
		return nil, nil, false
	})
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(apiBuffered), kgo.MaxBufferedBytes(apiBufferedBytes),
		kgo.RecordDeliveryTimeout(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	l := &local{producer: cl}
	write := func(partition int32, n int, d time.Duration) []route.Written {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		rs := make([]route.Request, n)
		for i := range rs {
			rs[i].ID = []byte("a")
		}
		return l.Produce(ctx, timer.TopicPartition{Topic: "r", Partition: partition}, rs)
	}
	if w := write(0, 1, time.Second); !w[0].Unknown {
		t.Fatalf("%+v", w)
	}
	lost := write(0, apiBuffered+1, time.Second)
	if last := lost[apiBuffered]; last.Offset != -1 || last.Unknown || last.Problem == "" {
		t.Errorf("what was not sent: %+v", last)
	}
	if w := write(1, 1, 10*time.Second); w[0].Offset != 0 {
		t.Errorf("another partition: %+v", w)
	}
}
