package calendars

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// deliveryTimeout is how long a Writer tries to write a record.
const deliveryTimeout = 10 * time.Second

// ErrUnknown says that a calendar may be written, or not.
var ErrUnknown = errors.New("outcome unknown")

// Writer changes the calendars of a group. It is safe for concurrent use.
type Writer struct {
	Table   *Table
	Options []kgo.Opt // of a client
}

// Now returns the calendars as they are known now.
func (w *Writer) Now() *Set { return w.Table.Now() }

// CaughtUp is that of the table.
func (w *Writer) CaughtUp(ctx context.Context) error { return w.Table.CaughtUp(ctx) }

// Write puts a calendar, or deletes it if text is nil. The caller has checked it (Set.Takes). Write returns when all
// in-sync replicas have the record and the table has read it. An error that is not ErrUnknown says that nothing was
// written.
//
// A calendar changes some times a year, so each Write has a producer of its own, and none waits beside.
func (w *Writer) Write(ctx context.Context, name string, text []byte) error {
	cl, err := kgo.NewClient(append(slices.Clone(w.Options),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(0),
		kgo.RecordDeliveryTimeout(deliveryTimeout),
		kgo.ProducerBatchMaxBytes(calendar.MaxRulesBytes+topics.MessageRoom))...)
	if err != nil {
		return fmt.Errorf("build the producer of calendars: %w", err)
	}
	defer cl.Close()
	written := make(chan error, 1)
	cl.Produce(ctx, &kgo.Record{Topic: w.Table.o.Topic, Key: []byte(name), Value: text},
		func(_ *kgo.Record, err error) { written <- err })
	select {
	case err = <-written:
	case <-ctx.Done(): // a producer does not give up a record that it has sent
		err = ctx.Err()
	}
	var refused *kerr.Error
	switch {
	case errors.As(err, &refused) && !refused.Retriable, errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("write to %s: %w", w.Table.o.Topic, err)
	case err != nil:
		return fmt.Errorf("write to %s: %w: %w", w.Table.o.Topic, ErrUnknown, err)
	}
	return w.Table.CaughtUp(ctx)
}
