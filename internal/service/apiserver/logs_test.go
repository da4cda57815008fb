package apiserver

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kafkatest"
)

// Whoever follows a log that retention has cut meanwhile is told so, and not of what is left.
func TestFollowEndsAtAGap(t *testing.T) {
	c := kfake.MustCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	defer c.Close()
	opts := []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}
	cl := kafkatest.Client(t, opts...)
	for range 3 {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "events", Value: []byte("{}")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	var cut kadm.Offsets
	cut.Add(kadm.Offset{Topic: "events", At: 2})
	if gone, err := kadm.NewClient(cl).DeleteRecords(t.Context(), cut); err != nil || gone.Error() != nil {
		t.Fatal(err, gone.Error())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l := &logs{&Instance{Options: opts}, slog.New(slog.DiscardHandler)}
	told := errors.New("told")
	follow := func(from int64) error {
		return l.Follow(ctx, "events", api.Position{Next: []int64{from}}, func(r *api.Record) error {
			if r != nil {
				return told
			}
			return nil
		})
	}
	if err := follow(1); !errors.Is(err, kerr.OffsetOutOfRange) {
		t.Errorf("behind what is gone: %v", err)
	}
	if err := follow(2); !errors.Is(err, told) {
		t.Errorf("what is there: %v", err)
	}
}
