package crash

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

// history is what one changelog partition tells about its owners.
type history struct {
	owner  string // of the last claim
	claims int
	// early holds checkpoints that wait for the claim of their own step: a
	// first acquisition writes them in this order.
	early    *wire.Checkpoint
	position int64

	last    time.Time // of the last checkpoint
	silence gap
	moves   []gap
}

// gap is a time without checkpoints.
type gap struct {
	from     time.Time
	length   time.Duration
	old, now string // owners before and after
}

// checkpoint takes one in, and says what is wrong with it.
func (h *history) checkpoint(c wire.Checkpoint, at time.Time) (wrong string) {
	if h.owner == "" && h.early == nil {
		h.early = &c
		return ""
	}
	switch {
	case c.Owner != h.owner:
		wrong = fmt.Sprintf("checkpoint of %s, the last claim is of %s", c.Owner, h.owner)
	case c.Position < h.position:
		wrong = fmt.Sprintf("position went back from %d to %d", h.position, c.Position)
	}
	h.position = c.Position
	h.heard(at, h.owner)
	return wrong
}

// claim takes one in.
func (h *history) claim(c wire.Claim, at time.Time) (wrong string) {
	if e := h.early; e != nil && h.owner == "" && (e.Step != c.Step || e.Owner != c.Owner) {
		wrong = fmt.Sprintf("checkpoint of %s before any claim; the first is of %s", e.Owner, c.Owner)
	}
	h.claims++
	h.heard(at, c.Owner)
	h.owner = c.Owner
	return wrong
}

// heard notes that there was a record of the given owner.
func (h *history) heard(at time.Time, owner string) {
	if !h.last.IsZero() {
		g := gap{from: h.last, length: at.Sub(h.last), old: h.owner, now: owner}
		if g.length > h.silence.length {
			h.silence = g
		}
		if g.old != g.now {
			h.moves = append(h.moves, g)
		}
	}
	h.last = at
}

// owners reads a changelog as a plain consumer does, and holds that the owner in
// checkpoints changes only at a claim and never returns without one.
func owners(t testing.TB, c *kafkatest.Cluster, changelog string) map[int32]*history {
	t.Helper()
	all := make(map[int32]*history)
	wrongs := 0
	readAll(t, c, changelog, func(r *kgo.Record) {
		h := all[r.Partition]
		if h == nil {
			h = &history{}
			all[r.Partition] = h
		}
		kind, _, err := wire.ParseKey(r.Key)
		wrong := ""
		switch kind {
		case wire.KindCheckpoint:
			var cp wire.Checkpoint
			if cp, err = wire.DecodeCheckpoint(r.Value); err == nil {
				wrong = h.checkpoint(cp, r.Timestamp)
			}
		case wire.KindClaim:
			var cl wire.Claim
			if cl, err = wire.DecodeClaim(r.Value); err == nil && cl.Step != "" { // see wire.ClaimRecords
				wrong = h.claim(cl, r.Timestamp)
			}
		}
		if err != nil {
			wrong = err.Error()
		}
		if wrong == "" {
			return
		}
		if wrongs++; wrongs <= 10 {
			t.Errorf("changelog %d/%d: %s", r.Partition, r.Offset, wrong)
		}
	})
	return all
}

// logSilences prints when partitions changed hands and how long nothing was
// heard of each, seconds counted from start; it returns the longest silence.
func logSilences(t testing.TB, all map[int32]*history, start time.Time) (worst time.Duration) {
	t.Helper()
	for _, p := range slices.Sorted(maps.Keys(all)) {
		h := all[p]
		var moves []string
		for _, m := range h.moves {
			moves = append(moves, fmt.Sprintf("at %s %s", since(start, m.from), m.length.Round(time.Millisecond)))
		}
		t.Logf("request partition %d: %d claims, moved %s; longest silence %s, at %s", p, h.claims,
			strings.Join(moves, ", "), h.silence.length.Round(time.Millisecond), since(start, h.silence.from))
		worst = max(worst, h.silence.length)
	}
	return worst
}

// logReceipts prints the longest time in which a consumer got nothing, for each
// target partition, and returns the longest of all.
func logReceipts(t testing.TB, received []kafkatest.Received, start time.Time) (worst time.Duration) {
	t.Helper()
	last, silence := make(map[timer.TopicPartition]time.Time), make(map[timer.TopicPartition]gap)
	for _, r := range received {
		at := timer.TopicPartition{Topic: r.Topic, Partition: r.Partition}
		if before, ok := last[at]; ok && r.At.Sub(before) > silence[at].length {
			silence[at] = gap{from: before, length: r.At.Sub(before)}
		}
		last[at] = r.At
	}
	for _, at := range slices.SortedFunc(maps.Keys(silence), func(a, b timer.TopicPartition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	}) {
		g := silence[at]
		t.Logf("target %s/%d: longest silence by receipt %s, at %s", at.Topic, at.Partition,
			g.length.Round(time.Millisecond), since(start, g.from))
		worst = max(worst, g.length)
	}
	return worst
}

func since(start, at time.Time) string { return at.Sub(start).Round(100 * time.Millisecond).String() }

// TestOwnersRule holds that the rule above notices what it must.
func TestOwnersRule(t *testing.T) {
	type record struct {
		claim    bool
		owner    string
		step     string
		position int64
	}
	for _, c := range []struct {
		name string
		log  []record
		ok   bool
	}{
		{"first acquisition: checkpoint and claim in one step",
			[]record{{false, "a", "1", 0}, {true, "a", "1", 0}, {false, "a", "2", 5}}, true},
		{"changes at a claim", []record{{true, "a", "1", 0}, {false, "a", "2", 1}, {true, "b", "3", 0},
			{false, "b", "4", 2}}, true},
		{"returns with a claim", []record{{true, "a", "1", 0}, {true, "b", "2", 0}, {true, "a", "3", 0},
			{false, "a", "4", 2}}, true},
		{"changes without a claim", []record{{true, "a", "1", 0}, {false, "b", "2", 1}}, false},
		{"former owner returns without a claim",
			[]record{{true, "a", "1", 0}, {true, "b", "2", 0}, {false, "a", "3", 2}}, false},
		{"checkpoint of somebody else before the first claim", []record{{false, "b", "1", 0}, {true, "a", "2", 0}},
			false},
		{"position goes back", []record{{true, "a", "1", 0}, {false, "a", "2", 9}, {false, "a", "3", 8}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, wrong := &history{}, ""
			for i, r := range c.log {
				at := time.Unix(int64(i), 0)
				if r.claim {
					wrong += h.claim(wire.Claim{Owner: r.owner, Step: r.step}, at)
				} else {
					wrong += h.checkpoint(wire.Checkpoint{Owner: r.owner, Step: r.step, Position: r.position}, at)
				}
			}
			if (wrong == "") != c.ok {
				t.Errorf("found %q", wrong)
			}
		})
	}
}
