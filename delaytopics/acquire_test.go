package delaytopics

import (
	"errors"
	"testing"

	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/ownership"
)

// The position is that of the last checkpoint, unless a step has committed an offset beyond it: then later checkpoints
// were lost, and an operator decides.
func TestAnOffsetBeyondTheLastCheckpoint(t *testing.T) {
	c := newCore(t, newSetup(t))
	for _, x := range []struct {
		name      string
		group     string // of the checkpoint, which is at 40
		committed int64
		step      string
		lost      bool
	}{
		{"none is committed", "g", -1, "", false},
		{"of the same step", "g", 40, "s/1", false},
		{"from before", "g", 30, "s/1", false},
		{"of a later step", "g", 80, "s/2", true},
		{"set by an operator", "g", 80, "", false},
		{"set by an operator who has kept the metadata", "g", 80, "s/1", false},
		{"of this group, which another one has replaced", "other", 80, "s/2", false},
	} {
		t.Run(x.name, func(t *testing.T) {
			got := &ownership.Acquired{Last: wire.Checkpoint{Group: x.group, Step: "s/1", Position: 40, Epoch: 7},
				Committed: x.committed, Step: x.step}
			c.o.AcceptLost = false
			last, err := New(c.o).complete(got)
			if fatal := new(ownership.Fatal); errors.As(err, &fatal) != x.lost || !x.lost && last.Position != 40 {
				t.Errorf("%+v, %v", last, err)
			}
			c.o.AcceptLost = true
			last, err = New(c.o).complete(got)
			if want := (wire.Checkpoint{Group: x.group, Step: "s/1", Position: 80}); err != nil || x.lost &&
				*last != want || !x.lost && *last != got.Last {
				t.Errorf("accepted: %+v, %v", last, err)
			}
		})
	}
}
