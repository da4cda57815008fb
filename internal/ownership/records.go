package ownership

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/timer"
)

// Records makes the records that an owner's steps write besides emissions. It is safe for concurrent use.
type Records struct {
	o      *Options
	epochs *epochs
}

// Changelog is a record for the log of the partition's owners.
func (r *Records) Changelog(key, value []byte) *kgo.Record {
	// Offset -1: it is not known to be written.
	return &kgo.Record{Topic: r.o.Topics.Changelog.Name, Partition: r.o.Partition, Key: key, Value: value, Offset: -1}
}

// Checkpoint is the record that says up to which position a step has settled requests; now is in Unix ms.
func (r *Records) Checkpoint(position int64, step string, now int64) *kgo.Record {
	c := wire.Checkpoint{
		Request: r.o.Topics.Request.ID, Changelog: r.o.Topics.Changelog.ID,
		Position: position, Step: step, Group: r.o.Group, Owner: r.o.Owner, Time: now, Epoch: r.epochs.below(position),
	}
	return r.Changelog(wire.CheckpointKey(), c.AppendTo(nil))
}

// Offset is the offset commit of a step, which is its fence within the group. For request topics it carries the
// number of partitions: see samePartitions. It carries the API's address too, so that other instances find the
// owner from its claim on.
func (r *Records) Offset(at int64, note wire.CommitNote) emitter.Offset {
	note.API = r.o.API
	if r.o.Topics.Delay == 0 {
		note.Partitions = r.o.Topics.Request.Partitions
	}
	return emitter.Offset{
		Topic: r.o.Topics.Request.Name, TopicID: r.o.Topics.Request.ID, Partition: r.o.Partition,
		At: at, Metadata: note.String(),
	}
}

// DeadLetterTopic is the topic of dead letters, with its present limit, which may be lower than at the start.
func (r *Records) DeadLetterTopic() *topics.Topic {
	t := r.o.Topics.DeadLetters
	if limit := int(r.o.Targets.BatchMaxBytes(t.Name)); t.MaxMessageBytes > limit {
		t.MaxMessageBytes = limit
	}
	return &t
}

// DeadLetterPartition is the partition for dead letters: the one with our number or, if that takes no writes, the next
// one that does, as far as is known. If none does, the share holds up its step, and the quarantine tries it.
func (r *Records) DeadLetterPartition() int32 {
	t := &r.o.Topics.DeadLetters
	for i := range t.Partitions {
		k := (r.o.Partition + i) % t.Partitions
		if !r.o.Targets.Leaders.Stalled(t.Name, k) &&
			r.o.Health.Allow(timer.TopicPartition{Topic: t.Name, Partition: k}, nil) {
			return k
		}
	}
	return r.o.Partition
}

// maxRuns is how many changes of the leader epoch are remembered: requests that are not settled yet
// seldom span more than one.
const maxRuns = 16

// epochs remembers in which leader epochs the last requests were written, so that a checkpoint can
// store the epoch of its position. Offset and epoch together show whether a log was cut and has grown
// again since it was read (KIP-320).
type epochs struct {
	mu   sync.Mutex // guards runs
	runs []run      // in order
}

// run is a run of requests of the same epoch.
type run struct {
	from  int64
	epoch partlog.Epoch
}

// begin forgets all but the epoch of the last record below a position.
func (e *epochs) begin(position int64, epoch partlog.Epoch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs = append(e.runs[:0], run{position - 1, epoch})
}

// read notes the epochs of records, in the order of the log, and that of the last batch below next; 0 if it is unknown.
func (e *epochs) read(recs []*kgo.Record, next int64, last partlog.Epoch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	note := func(at int64, epoch partlog.Epoch) {
		if n := len(e.runs); n == 0 || e.runs[n-1].epoch != epoch && e.runs[n-1].from < at {
			e.runs = append(e.runs, run{at, epoch})
		}
	}
	for _, r := range recs {
		note(r.Offset, partlog.EpochOf(r.LeaderEpoch))
	}
	if next > 0 && last != 0 {
		note(next-1, last)
	}
	e.runs = append(e.runs[:0], e.runs[max(0, len(e.runs)-maxRuns):]...)
}

// below returns the epoch of the last record below a position; 0 if it is not known.
func (e *epochs) below(position int64) partlog.Epoch {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := len(e.runs) - 1; i >= 0; i-- {
		if e.runs[i].from < position {
			return e.runs[i].epoch
		}
	}
	return 0
}
