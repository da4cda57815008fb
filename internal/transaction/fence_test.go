package transaction

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// guarded is a source with a Fence. It offers one share at a time and nothing once it
// is refused.
type guarded struct {
	name    string
	refuse  bool
	offsets []int64
	outcome []Outcome
}

func (s *guarded) Seal(step string, _ *Room) *Share {
	if len(s.outcome) > 0 && s.refuse {
		return nil
	}
	sh := &Share{Token: fakeToken{}, Offset: Offset{Topic: "r"}}
	for i := range 3 {
		sh.Records = append(sh.Records, &kgo.Record{Topic: "log", Key: fmt.Append(nil, s.name, i), Value: []byte(step), Offset: -1})
	}
	sh.Fence = func() error {
		for _, r := range sh.Records {
			s.offsets = append(s.offsets, r.Offset)
		}
		if s.refuse {
			return errors.New("no")
		}
		return nil
	}
	sh.Done = func(o Outcome) { s.outcome = append(s.outcome, o) }
	return sh
}

func (*guarded) Wait() time.Duration { return maxSleep }

// If a share refuses a step at the last moment, when the offsets of its records are
// known, the step is aborted. The others are sealed again, without a pause.
func TestFenceOfAShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := fakeLane(t)
		good, bad := &guarded{name: "good"}, &guarded{name: "bad", refuse: true}
		l.of.Add(good)
		l.of.Add(bad)
		for range 2 {
			if worked, err := l.step(t.Context()); !worked || err != nil {
				t.Fatalf("worked %v, %v", worked, err)
			}
		}
		if want := []Outcome{Aborted, Committed}; !slices.Equal(good.outcome, want) || !slices.Equal(bad.outcome, want[:1]) {
			t.Errorf("outcomes %v and %v", good.outcome, bad.outcome)
		}
		for i, at := range good.offsets {
			if at < 0 || i%3 > 0 && at != good.offsets[i-1]+1 {
				t.Errorf("offsets seen: %v", good.offsets)
			}
		}
	})
}
