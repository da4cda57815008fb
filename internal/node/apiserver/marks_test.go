package apiserver

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kafkatest"
)

// Marks are read as they were set, of their topic alone. On a real broker marks end with their topic, see package
// test/api.
func TestMarksAreOffsetsOfAGroup(t *testing.T) {
	const topic, other = "letters", "others"
	c, _ := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(3, topic, other))
	cl := kafkatest.Client(t, kgo.SeedBrokers(c.ListenAddrs()...))
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
