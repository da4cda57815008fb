package repartition

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// timeout is that of the one transaction: the default of the brokers' transaction.max.timeout.ms.
	timeout = 15 * time.Minute
	// abortLimit bounds the abort of an abandoned transaction. If this run cannot end it, the next one does.
	abortLimit = 10 * time.Second
	// commitLimit bounds the attempts to commit again: longer than a broker's session.
	commitLimit = time.Minute
)

// writer writes the transaction. Only mu and the fields that it guards are shared with the client's goroutines.
type writer struct {
	ctx    context.Context // of all records
	client *kgo.Client
	id     string // transactional
	set    *topics.Set
	group  string
	step   string
	now    int64
	next   []int64 // offset of the next record of each changelog partition

	mu  sync.Mutex // guards the fields below
	err error      // the first one
}

// begin begins the transaction, with the fence of every partition.
func begin(ctx context.Context, j *mover) (*writer, error) {
	w := &writer{ctx: ctx, set: j.o.Set, group: j.o.Group, step: "follow/" + rand.Text(), now: j.o.Now().UnixMilli()}
	// One ID for each request topic: a second run ends the transaction that the first left open.
	w.id = repair.TransactionalIDPrefix(w.group) + "follow/" + w.set.Request.Name
	var err error
	w.client, err = kgo.NewClient(append(j.o.Client[:len(j.o.Client):len(j.o.Client)],
		kgo.TransactionalID(w.id), kgo.TransactionTimeout(timeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytes(int32(min(w.set.Changelog.MaxMessageBytes, w.set.DeadLetters.MaxMessageBytes))),
	)...)
	if err != nil {
		return nil, fmt.Errorf("build transactional client: %w", err)
	}
	if err := w.fence(ctx, j.parts); err != nil {
		w.close()
		if errors.Is(err, kerr.InvalidTransactionTimeout) {
			err = fmt.Errorf("%w: let transactions take %s, with the brokers' transaction.max.timeout.ms", err, timeout)
		}
		return nil, err
	}
	return w, nil
}

func (w *writer) fence(ctx context.Context, parts []part) error {
	if err := w.client.BeginTransaction(); err != nil {
		return fmt.Errorf("begin the transaction: %w", err)
	}
	offsets := make([]emitter.Offset, len(parts))
	note := wire.CommitNote{Step: w.step, Partitions: int32(len(parts))}
	for i := range parts {
		w.next = append(w.next, parts[i].changelog.end)
		offsets[i] = emitter.Offset{
			Topic: w.set.Request.Name, TopicID: w.set.Request.ID, Partition: int32(i), At: parts[i].requests.end,
			Metadata: note.String(),
		}
	}
	return emitter.CommitOffsets(ctx, w.client, w.id, w.group, offsets)
}

// move makes t pending in a partition to which no request has brought it.
func (w *writer) move(to int32, t *timer.Timer) {
	w.put(to, t.MovedTo(w.next[to]))
}

func (w *writer) put(to int32, t *timer.Timer) {
	w.changelog(to, wire.TimerKey(nil, t.ID), t.AppendTo(nil))
}

func (w *writer) remove(from int32, id []byte) {
	w.changelog(from, wire.TimerKey(nil, id), nil)
}

// finish writes the last records of a partition: a checkpoint with the position of its requests, and a claim.
func (w *writer) finish(partition int32, position int64) {
	cp := wire.Checkpoint{
		Request: w.set.Request.ID, Changelog: w.set.Changelog.ID, Position: position, Step: w.step, Group: w.group,
		Owner: owner, Time: w.now,
	}
	w.changelog(partition, wire.CheckpointKey(), cp.AppendTo(nil))
	for _, value := range (wire.Claim{Step: w.step, Group: w.group, Owner: owner, Time: w.now}).Values() {
		w.changelog(partition, wire.ClaimKey(), value)
	}
}

// changelog writes one record, whose offset must be the next one.
func (w *writer) changelog(partition int32, key, value []byte) {
	at := w.next[partition]
	w.next[partition]++
	w.client.Produce(w.ctx, &kgo.Record{Topic: w.set.Changelog.Name, Partition: partition, Key: key, Value: value},
		func(r *kgo.Record, err error) {
			if err == nil && r.Offset != at {
				err = fmt.Errorf("another process writes to %s/%d: stop every instance", r.Topic, r.Partition)
			}
			w.fail(err)
		})
}

func (w *writer) dead(rec *kgo.Record) {
	w.client.Produce(w.ctx, rec, func(_ *kgo.Record, err error) { w.fail(err) })
}

func (w *writer) fail(err error) {
	if errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.ProducerFenced) ||
		errors.Is(err, kerr.InvalidTxnState) {
		err = fmt.Errorf("an instance has been started and has ended the transaction: stop every instance (%w)",
			err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && err != nil {
		w.err = err
	}
}

func (w *writer) flush(ctx context.Context) error {
	if err := w.client.Flush(ctx); err != nil {
		return err
	}
	return w.failed()
}

// failed returns the first error, because of which nothing will be committed; nil if there is no writer yet.
func (w *writer) failed() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// commit commits. If EndTxn is not answered it is sent again, never replaced by an abort: see emitter.CommitAgain.
func (w *writer) commit(ctx context.Context) error {
	id, epoch, err := w.client.ProducerID(ctx)
	if err != nil {
		return fmt.Errorf("commit: %w; nothing was committed", err)
	}
	ended := w.client.EndTransaction(ctx, kgo.TryCommit)
	if ended == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commitLimit)
	defer cancel()
	if err := emitter.CommitAgain(ctx, w.client, w.id, id, epoch); err != nil {
		return fmt.Errorf(
			"commit: %w (%w); the outcome is unknown: run it again, nothing is done twice", ended, err)
	}
	return nil
}

// close aborts the transaction if it is not committed.
func (w *writer) close() {
	ctx, cancel := context.WithTimeout(context.Background(), abortLimit)
	defer cancel()
	if w.client.AbortBufferedRecords(ctx) == nil {
		_ = w.client.EndTransaction(ctx, kgo.TryAbort) // does nothing if it was committed
	}
	w.client.Close()
}
