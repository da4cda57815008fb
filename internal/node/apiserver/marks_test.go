package apiserver

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// Marks are read as they were set, of their topic alone.
func TestMarksAreOffsetsOfAGroup(t *testing.T) {
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(3, "letters", "others"))
	holdsMarks(t, kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...)), "letters", "others")
}

// On a real broker, too. There marks end with their topic, so a topic that is recreated has none.
func TestMarksOnARealBroker(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Start(t, 1)
	letters, others := cluster.CreateTopic(t, 3, nil), cluster.CreateTopic(t, 3, nil)
	cl := cluster.Client(t)
	m := newMarks(&Instance{Client: cl}, "g")
	await.Until(t, time.Minute, "the group has a coordinator", func() bool {
		_, err := m.Marks(t.Context(), letters)
		return err == nil
	})
	holdsMarks(t, cl, letters, others)
	if _, err := cluster.Admin(t).DeleteTopic(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	// The coordinator hears of a deletion with the cluster's metadata, on a busy machine most of a minute later.
	await.Until(t, 5*time.Minute, "the marks are gone", func() bool {
		got, err := m.Marks(t.Context(), letters)
		return err == nil && len(got) == 0
	})
	if got, err := m.Marks(t.Context(), others); err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	cluster.CreateTopic(t, 3, nil, letters)
	if got, err := m.Marks(t.Context(), letters); err != nil || len(got) > 0 {
		t.Errorf("after it was recreated: %v, %v", got, err)
	}
}

func holdsMarks(t *testing.T, cl *kgo.Client, topic, other string) {
	t.Helper()
	m, ctx := newMarks(&Instance{Client: cl}, "g"), t.Context()
	if got, err := m.Marks(ctx, topic); err != nil || len(got) > 0 {
		t.Fatalf("%v, %v", got, err)
	}
	set := map[int32]api.Mark{0: {Offset: 7, Metadata: `{"by":"a"}`}, 2: {Metadata: strings.Repeat("x", 3500)}}
	if err := m.SetMarks(ctx, topic, set); err != nil {
		t.Fatal(err)
	}
	if err := m.SetMarks(ctx, other, map[int32]api.Mark{1: {Offset: 1}}); err != nil {
		t.Fatal(err)
	}
	if got, err := m.Marks(ctx, topic); err != nil || !maps.Equal(got, set) {
		t.Errorf("%v, %v", got, err)
	}
	set[0] = api.Mark{Offset: 3}
	if err := m.SetMarks(ctx, topic, map[int32]api.Mark{0: set[0]}); err != nil { // back
		t.Fatal(err)
	}
	if got, err := m.Marks(ctx, topic); err != nil || !maps.Equal(got, set) {
		t.Errorf("%v, %v", got, err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := m.SetMarks(gone, topic, set); err == nil || !strings.Contains(err.Error(), "group g.reviewed") {
		t.Errorf("%v", err)
	}
}
