package node

import (
	"runtime"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/kit/memory"
	"github.com/waterclock/waterclock/internal/node/config"
)

// The partitions of all topics together may use the configured memory, however many there are, fixed-delay topics
// included; and a topic as much as another one with many more partitions.
func TestMemoryIsSharedByTopics(t *testing.T) {
	const partitions = 200
	topic := func(partitions int32) *served {
		return &served{set: topics.Set{Request: topics.Topic{Partitions: partitions}}}
	}
	s := memory.Divide(memory.Minimum)
	delayed := topic(partitions)
	delayed.set.Delay = time.Minute
	m := newBudgets(&s,
		newServedTopics(map[string]*served{"large": topic(partitions), "small": topic(1), "delayed": delayed}))
	for _, c := range []struct {
		name   string
		b      *budget.Budget
		total  int64
		topics []string
	}{
		{"wheel", m.wheel, s.Wheel, []string{"large", "small"}},
		{"dirty", m.dirty, s.Dirty / 2, []string{"large", "small"}},
		{"firings", m.firings, s.Firings, []string{"large", "small"}},
		{"questions", m.questions, s.Questions, []string{"large", "small"}},
		{"requests", m.requests, s.Requests, []string{"large", "small", "delayed"}},
	} {
		const piece = 1 << 10
		held := map[string]int64{}
		accounts := map[string][]*budget.Account{}
		for _, name := range c.topics {
			n := partitions
			if name == "small" {
				n = 1
			}
			for range n {
				accounts[name] = append(accounts[name], c.b.Open(name))
			}
		}
		for _, name := range c.topics {
			for _, a := range accounts[name] {
				for used := int64(piece); ; used += piece {
					if held[name] += piece; a.Set(used) {
						break
					}
				}
			}
		}
		var all int64
		for _, n := range held {
			all += n
		}
		if most := c.total + int64(len(c.topics))*partitions*piece; all > most || all < c.total*3/4 {
			t.Errorf("%s: %d bytes are held in all, want %d at most", c.name, all, most)
		}
		if least := c.total / 8 / int64(len(c.topics)); held["small"] < least {
			t.Errorf("%s: the topic of one partition came last and has %d bytes, want %d at least", c.name,
				held["small"], least)
		}
	}
}

// With few partitions there are as many planners as cores. A configured number takes precedence, limited by a sixteenth
// of the memory for a thousand partitions.
func TestSubPartitionsByCoresAndMemory(t *testing.T) {
	cores := runtime.GOMAXPROCS(0)
	for _, c := range []struct{ set, owned, want int }{
		{0, 0, min(cores, config.MaxSubPartitions)}, {0, 1, min(cores, config.MaxSubPartitions)}, {0, cores, 1},
		{0, 1000, 1},
		{1, 1, 1}, {8, 1, 8}, {8, 50, 8}, {8, 1000, 1}, {3, 300, 2},
	} {
		if got := subPartitions(c.set, c.owned, memory.Divide(memory.Minimum).Total); got != c.want {
			t.Errorf("set %d, %d owned: %d planners for each, want %d", c.set, c.owned, got, c.want)
		}
	}
}

// As many replays at a time as there are cores, and as there is memory for.
func TestReplaySlots(t *testing.T) {
	for _, x := range [][3]int{{1, 4, 2}, {2, 4, 2}, {3, 4, 3}, {4, 4, 4}, {64, 4, 4}, {64, 2, 2}, {1, 2, 2}} {
		if got := replaySlots(x[0], x[1]); got != x[2] {
			t.Errorf("%d on %d cores with memory for %d, want %d", got, x[0], x[1], x[2])
		}
	}
}
