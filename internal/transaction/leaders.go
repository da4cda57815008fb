package transaction

import (
	"slices"

	"github.com/waterclock/waterclock/internal/hanging"
	"github.com/waterclock/waterclock/internal/timer"
)

// leaderEpoch is what a client knew of a partition's leader; ok: there was one.
type leaderEpoch struct {
	timer.TopicPartition
	epoch int32
	ok    bool
}

// leadership is what the client knows of the leaders of the transaction's
// partitions; of a topic that it does not know it wrote nothing.
func (c *txnClient) leadership() (all []leaderEpoch) {
	for topic, ps := range c.parts {
		for _, p := range ps {
			if leader, epoch, err := c.PartitionLeader(topic, p); leader >= 0 || err != nil {
				all = append(all, leaderEpoch{timer.TopicPartition{Topic: topic, Partition: p}, epoch, err == nil})
			}
		}
	}
	return all
}

// moved has the markers look at partitions that had other leaders when the client
// knew of these, and reports whether there is one.
func (c *txnClient) moved(m *hanging.Markers, leaders []leaderEpoch) (moved bool) {
	for _, was := range leaders {
		leader, epoch, err := c.PartitionLeader(was.Topic, was.Partition)
		if forgotten := leader < 0 && err == nil; !was.ok || !forgotten && (epoch != was.epoch || err != nil) {
			moved = true
			m.Moved(was.TopicPartition)
		}
	}
	return moved
}

// noteEnd notes how the client's transaction ended, and who led its partitions then. A
// leader that went and came back since the announce may have missed the marker
// of the transaction before. An abort is the last that an ID does: its next
// transaction would be a commit, and could close with that what lacks the abort.
func (c *txnClient) noteEnd(m *hanging.Markers, how hanging.Ending) {
	c.retire = c.retire || how != hanging.EndingCommit
	if m == nil {
		return
	}
	m.NoteEnd(c.id, c.last, how, c.parts)
	began := c.leaders
	c.leaders = c.leadership()
	if c.moved(m, began) || c.moved(m, slices.DeleteFunc(slices.Clone(c.leaders), func(e leaderEpoch) bool { return e.ok })) {
		c.retire = true
	}
}
