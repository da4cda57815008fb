package node

import (
	"runtime"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/internal/kit/budget"
	"github.com/waterclock/waterclock/internal/kit/memory"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/ownership/membership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/partition/planner"
	"github.com/waterclock/waterclock/statestore"
)

// builder builds partitions. Its options are common to all partitions.
type builder struct {
	shared   ownership.Options
	timers   partition.Options   // of partitions of request topics
	delays   delaytopics.Options // of partitions of fixed-delay topics
	store    *statestore.Store
	budgets  budgets
	assigned func(*partition.Partition) // nil, or a test's
}

func (b *builder) build(t *membership.Token, topic *served) servedPartition {
	own := b.shared
	own.Topics, own.Settings, own.Partition, own.Token = &topic.set, topic.settings, t.Partition, t
	if topic.delayed() {
		o := b.delays
		o.Options, o.Rules, o.Queue = own, topic.rules, b.budgets.requests.Open(t.Topic)
		return delaytopics.New(o)
	}
	o := b.timers
	o.Options, o.Rules, o.Memory = own, topic.rules, b.budgets.of(t.Topic)
	o.Store = b.store.Partition(statestore.PartitionID{Topic: topic.set.Request.ID, Partition: t.Partition})
	p := partition.New(o)
	if b.assigned != nil {
		b.assigned(p)
	}
	return p
}

// subPartitions returns how many planners a partition gets if it is acquired now: one if the instance owns as many
// partitions as it has cores, and more if it owns fewer, to keep the cores busy. A number in the settings takes
// precedence, as long as the planners of all partitions take no more than a sixteenth of the memory.
func subPartitions(set, owned int, memory int64) int {
	owned = max(1, owned)
	if set > 0 {
		return min(set, max(1, int(memory/16/planner.Memory)/owned))
	}
	return min(max(1, runtime.GOMAXPROCS(0)/owned), config.MaxSubPartitions)
}

// budgets are shared by all partitions. This process may come to own all of them.
type budgets struct {
	wheel, dirty, requests, firings, questions *budget.Budget
	replay                                     int // bytes of one replay
}

func newBudgets(s *memory.Shares, topics *servedTopics) budgets {
	timers, all := make(map[string]int32), make(map[string]int32)
	for name, t := range topics.byName {
		if all[name] = t.set.Request.Partitions; !t.delayed() {
			timers[name] = all[name]
		}
	}
	// Dirty timers may take half of their share of the memory, because the checkpoint that is being written may hold as
	// much again.
	return budgets{budget.New(s.Wheel, timers), budget.New(s.Dirty/2, timers), budget.New(s.Requests, all),
		budget.New(s.Firings, timers), budget.New(s.Questions, timers), int(s.Replay)}
}

// of returns the shares of a partition of a request topic.
func (b *budgets) of(topic string) partition.Memory {
	return partition.Memory{
		Wheel: b.wheel.Open(topic), Dirty: b.dirty.Open(topic), Requests: b.requests.Open(topic),
		Firings: b.firings.Open(topic), Questions: b.questions.Open(topic), Replay: b.replay,
	}
}
