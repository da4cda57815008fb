package emitter

import (
	"slices"
	"testing"
	"time"
)

// Of the clients that have rested, the one that was used last begins; if none has, the one that has rested longest. So
// small steps use all in turn, large ones two, rare ones one.
func TestTheOrderInWhichClientsBegin(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		what  string
		steps time.Duration // how long one step lasts
		pause time.Duration // until the next one
		want  []int
	}{
		{"small steps", 5 * time.Millisecond, 0, []int{0, 1, 2, 3, 0, 1, 2, 3}},
		{"larger ones", 15 * time.Millisecond, 0, []int{0, 1, 2, 0, 1, 2, 0, 1}},
		{"large ones", markersRest, 0, []int{0, 1, 0, 1, 0, 1, 0, 1}},
		{"rare ones", 5 * time.Millisecond, time.Minute, []int{0, 0, 0, 0, 0, 0, 0, 0}},
	} {
		p := &pool{clients: []*txnClient{{}, {}, {}, {}}}
		var got []int
		for range tt.want {
			slot := p.order(now)[0]
			p.clients[slot].used = now.Add(tt.steps)
			now = now.Add(tt.steps + tt.pause)
			got = append(got, slot)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.what, got, tt.want)
		}
	}
	p := &pool{clients: []*txnClient{{used: now}, nil, {used: now.Add(-markersRest)},
		{used: now.Add(-2 * markersRest)}}}
	if got := p.order(now); !slices.Equal(got, []int{2, 3, 1, 0}) {
		t.Errorf("%v, want the one that was used last of those that have rested, and last the one that has not", got)
	}
}
