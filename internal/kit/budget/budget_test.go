package budget

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/audit/history"
)

// grow has an account take pieces for as long as it has not enough, up to most of them.
func grow(a *Account, piece int64, most int) {
	for range most {
		if a.full || a.Set(a.used+piece) {
			return
		}
	}
}

// Who is alone with a backlog has all but what is set aside for others; alone at all it has everything.
func TestAloneItHasAll(t *testing.T) {
	const total, piece = 64 << 20, 64 << 10
	for _, c := range []struct {
		name       string
		partitions map[string]int32
		want       int64
	}{
		{"one partition", map[string]int32{"a": 1}, total},
		{"one of two topics", map[string]int32{"a": 1, "b": 1}, total - total/16},
		{"one partition of eight", map[string]int32{"a": 8}, total - 7*total/64},
		{"beside a topic of a hundred partitions", map[string]int32{"a": 1, "b": 100}, total - total/16},
	} {
		a := New(total, c.partitions).Open("a")
		if grow(a, piece, total); a.used < c.want || a.used >= c.want+piece {
			t.Errorf("%s: %d bytes, want %d", c.name, a.used, c.want)
		}
	}
	alone := Alone(total)
	if grow(alone, piece, total); alone.used != total {
		t.Errorf("alone: %d bytes, want %d", alone.used, total)
	}
}

// Two topics with backlogs come to have as much, whoever was first and however many partitions they have; and all
// together is bounded meanwhile.
func TestBacklogsOfTwoTopicsComeToHaveAsMuch(t *testing.T) {
	const total, piece, noisyPartitions = 64 << 20, 64 << 10, 40
	b := New(total, map[string]int32{"noisy": noisyPartitions, "late": 1})
	var noisy []*Account
	for range noisyPartitions {
		noisy = append(noisy, b.Open("noisy"))
	}
	sum := func() (n int64) {
		for _, a := range noisy {
			n += a.used
		}
		return n
	}
	late := b.Open("late")
	round := func() {
		for _, a := range append(noisy, late) {
			a.Set(max(0, a.used-2*piece)) // what is let go of
			grow(a, piece, 4)
		}
		if all := sum() + late.used; all > total+(noisyPartitions+1)*piece {
			t.Fatalf("%d bytes in all, of %d", all, total)
		}
	}
	for range 100 {
		for _, a := range noisy {
			grow(a, piece, 2)
		}
	}
	if sum() < total*9/10 {
		t.Fatalf("alone the noisy topic has %d bytes", sum())
	}
	if !late.Set(0) && late.Limit() < total/16 {
		t.Errorf("the late one may have %d bytes, %d are set aside for it", late.Limit(), total/16)
	}
	for range 1000 {
		round()
	}
	if late.used < total/4 || sum() < total/4 {
		t.Errorf("with backlogs on both the late topic has %d bytes, the noisy one %d, of %d", late.used, sum(), total)
	}
	h := history.History{Scope: history.Scope{Settle: 10 * time.Second}}
	for i := range 1000 { // one round a second
		round()
		h.Holdings = append(h.Holdings,
			history.Holding{Instance: "an instance", Pool: "the memory", Holder: "noisy", At: time.Unix(int64(i), 0),
				Holds: sum(), Capacity: total, Waits: true},
			history.Holding{Instance: "an instance", Pool: "the memory", Holder: "late", At: time.Unix(int64(i), 0),
				Holds: late.used, Capacity: total, Waits: late.full})
	}
	for _, v := range history.Check(h) {
		t.Error(v)
	}
}

// An idle topic does not cost the others more than it holds.
func TestAnIdleTopicCostsWhatItHolds(t *testing.T) {
	const total, held = 64 << 20, 5 << 20
	b := New(total, map[string]int32{"a": 1, "b": 1})
	b.Open("b").Set(held)
	if got, want := b.Open("a").Limit(), int64(total-held); got != want {
		t.Errorf("the other one may have %d bytes, want %d", got, want)
	}
}

// Whatever others hold forever, a partition that holds nothing may take something. Nobody grows but into what is free:
// all together stay within the total, but for the last piece of each. An account that is closed holds nothing.
func TestBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const piece = 100
		partitions := map[string]int32{}
		names := []string{"a", "b", "c"}[:rapid.IntRange(1, 3).Draw(t, "topics")]
		all := 0
		for _, n := range names {
			partitions[n] = rapid.Int32Range(1, 5).Draw(t, "partitions")
			all += int(partitions[n])
		}
		total := rapid.Int64Range(reserved*Least*int64(3*5), 1<<20).Draw(t, "total")
		b := New(total, partitions)
		var accounts []*Account
		for _, n := range names {
			for range partitions[n] {
				accounts = append(accounts, b.Open(n))
			}
		}
		most := total + int64(all)*piece
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			a := rapid.SampledFrom(accounts).Draw(t, "account")
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				a.Set(rapid.Int64Range(0, a.used).Draw(t, "left"))
			default:
				grow(a, piece, rapid.IntRange(1, 2000).Draw(t, "pieces"))
			}
			var sum, extra, idle int64
			backlogged := 0
			for _, of := range b.topics {
				if of.backlogged > 0 {
					backlogged++
				}
			}
			for _, a := range accounts {
				sum, extra = sum+a.used, extra+a.extra()
				if !a.full {
					idle += a.extra()
				}
				if a.used == 0 && (a.full || a.Limit() < Least) {
					t.Fatalf("one that holds nothing may hold %d", a.Limit())
				}
			}
			if sum > most || extra != b.extra || idle != b.idle || backlogged != b.backlogged {
				t.Fatalf("%d of %d bytes; extra %d counted as %d, idle %d as %d, backlogged %d as %d", sum, total,
					extra, b.extra, idle, b.idle, backlogged, b.backlogged)
			}
		}
		for _, a := range accounts {
			a.Close()
			a.Close()
			a.Set(total)
		}
		if b.extra != 0 || b.idle != 0 || b.backlogged != 0 {
			t.Fatalf("all are closed, and %d bytes, %d of them idle, and %d topics are left", b.extra, b.idle,
				b.backlogged)
		}
	})
}
