package membership

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// processOf parses the client IDs of these tests.
func processOf(clientID string) string {
	p, ours := strings.CutPrefix(clientID, "waterclock-")
	if !ours {
		return ""
	}
	return p
}

// living asks the broker until the group is stable.
func (se *setup) living() (processes []string, all bool) {
	se.t.Helper()
	await.Until(se.t, testLimit, "the group is stable", func() bool {
		groups, err := se.adm.DescribeGroups(context.Background(), se.group)
		must(se.t, err)
		g := groups[se.group]
		var living map[string]bool
		living, all = Living(&g, processOf)
		processes = slices.Sorted(maps.Keys(living))
		return g.State == "Stable"
	})
	return processes, all
}

// Living sees which processes live even if static members were replaced, for which the broker
// keeps the client ID of the first process.
func TestLiving(t *testing.T) {
	onBoth(t, func(t *testing.T, x *setup) {
		member := func(process, instance string) *resident {
			o := x.calm("waterclock-" + process)
			o.Process, o.InstanceID, o.Leave = process, instance, false
			return x.join(o)
		}
		expect := func(want ...string) {
			t.Helper()
			if got, all := x.living(); !all || !slices.Equal(got, want) {
				t.Errorf("%v live, all of them %v; want %v", got, all, want)
			}
		}
		a := member("a", "wc-0")
		x.shared(partitions, a)
		expect("a")
		b := member("b", "")
		x.shared(2, a, b)
		expect("a", "b")
		a.stop()
		again := member("a2", "wc-0")
		x.shared(2, again, b)
		expect("a2", "b")
	})
}

// Members of older versions have no user data. A dynamic one is identified by its client ID. A
// static one is not: then all is false.
func TestLivingWithOlderVersions(t *testing.T) {
	x := func(static bool) *kadm.DescribedGroup {
		m := kadm.DescribedGroupMember{MemberID: "m", ClientID: "waterclock-old"}
		if name := "wc-0"; static {
			m.InstanceID = &name
		}
		return &kadm.DescribedGroup{Members: []kadm.DescribedGroupMember{m}}
	}
	if living, all := Living(x(false), processOf); !all || !living["old"] {
		t.Errorf("a dynamic one: %v, %v", living, all)
	}
	if living, all := Living(x(true), processOf); all || living["old"] {
		t.Errorf("a static one: %v, %v", living, all)
	}
}

// Members that come back get the partitions whose views they have.
func TestViewsGetTheirPartitionsBack(t *testing.T) {
	onBoth(t, func(t *testing.T, x *setup) {
		member := func(process string, has ...int32) *resident {
			o := x.calm(process)
			o.Views = func() (vs []View) {
				for _, p := range has {
					vs = append(vs, View{x.topic, p, 1000})
				}
				return vs
			}
			return x.join(o)
		}
		a := member("a", 0, 3)
		x.shared(partitions, a)
		b := member("b", 1, 2)
		x.shared(2, a, b)
		if got := b.alive(); !slices.Equal(got, []int32{1, 2}) {
			t.Errorf("it has %v", got)
		}
	})
}
