package service

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/partlog"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// edgeEvery is how often the ends of the logs are asked for that are read here, edgeTimeout
	// bounds each of the two questions.
	edgeEvery, edgeTimeout = time.Second, 2 * time.Second
	// heldNamed is from when on a transaction that holds a log is told, with its producer.
	// Younger ones are what transactional producers do all the time.
	heldNamed = 2 * time.Second
	// heldAgain is how often a producer is asked for of whom not all was found; nameTimeout
	// bounds one question.
	heldAgain, nameTimeout = 10 * time.Second, 5 * time.Second
	// heldSaid is from when on, and heldSaidEvery how often, the log names it.
	heldSaid, heldSaidEvery = 10 * time.Second, time.Minute
)

// edges looks where the logs end that are read here, and names those who keep them from being
// read: the brokers show no consumer what lies behind the first record of an open transaction,
// nor that anything lies there. Each partition is told (ownership.Life.SetLogEnd).
//
// One goroutine, Run's, has all of it. Producers are named by another, one question at a time,
// so that a broker that does not answer holds up no lag; its answer comes through named.
type edges struct {
	in    *instance
	held  map[key]*holding // partitions whose logs are held now
	named chan map[key]name
	asked bool // somebody names producers
}

// holding is one transaction at the last stable offset of a partition. It ends when that offset
// moves, when nothing is held any more, or with the partition.
type holding struct {
	at    int64
	seen  time.Time // when it was first seen
	by    ownership.Held
	known bool      // by has all that can be known
	asked time.Time // when its producer was asked for
	said  time.Time // when it was logged
}

// name is what was found of the transaction at an offset.
type name struct {
	at     int64
	holder emitter.Holder
	oldest time.Time // timestamp of the record there
}

func newEdges(in *instance) *edges {
	return &edges{in: in, held: make(map[key]*holding), named: make(chan map[key]name, 1)}
}

// Run looks until ctx ends.
func (e *edges) Run(ctx context.Context) error {
	t := time.NewTicker(edgeEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			if e.asked {
				<-e.named
			}
			return nil
		case found := <-e.named:
			e.asked = false
			e.take(found)
		case <-t.C:
			e.look(ctx)
			e.ask(ctx)
		}
	}
}

// look tells all partitions that are read where their logs end.
func (e *edges) look(ctx context.Context) {
	parts := e.in.reading()
	logs := make([]partlog.Log, 0, len(parts))
	for k := range parts {
		logs = append(logs, partlog.Log{Topic: k.topic, Partition: k.partition})
	}
	found := partlog.Edges(ctx, e.in.client, logs, edgeTimeout)
	for k := range e.held {
		if parts[k] == nil {
			delete(e.held, k)
		}
	}
	for k, p := range parts {
		if edge, ok := found[partlog.Log{Topic: k.topic, Partition: k.partition}]; ok {
			p.SetLogEnd(e.judge(k, edge, time.Now()))
		}
	}
}

// judge follows what holds a partition.
func (e *edges) judge(k key, edge partlog.Edge, now time.Time) ownership.LogEnd {
	h := e.held[k]
	if h != nil && (!edge.Held() || edge.Stable != h.at) {
		if !h.said.IsZero() {
			e.in.log.Info("requests behind a transaction can be read: it has ended", "topic", k.topic, "partition", k.partition,
				"offset", h.at, "producer", h.by.Producer)
		}
		delete(e.held, k)
		h = nil
	}
	if !edge.Held() {
		return ownership.LogEnd{Edge: edge}
	}
	if h == nil {
		h = &holding{at: edge.Stable, seen: now, by: ownership.Held{From: edge.Stable, Since: now, Producer: "a producer that is not known yet"}}
		e.held[k] = h
	}
	end := ownership.LogEnd{Edge: edge, Since: h.by.Since}
	if now.Sub(h.seen) < heldNamed {
		return end
	}
	by := h.by
	by.Count = edge.End - edge.Stable
	if end.By = &by; now.Sub(h.seen) >= heldSaid && now.Sub(h.said) >= heldSaidEvery {
		h.said = now
		e.in.log.Warn("requests cannot be read: a transaction of another producer is open on the request topic; see docs/OPERATIONS.md, An open transaction on the request topic",
			"topic", k.topic, "partition", k.partition, "offset", by.From, "count", by.Count, "producer", by.Producer, "since", by.Since)
	}
	return end
}

// ask has somebody name the producers that are due for it, unless somebody does already.
func (e *edges) ask(ctx context.Context) {
	now, at := time.Now(), make(map[timer.TopicPartition]int64)
	for k, h := range e.held {
		if !h.known && now.Sub(h.seen) >= heldNamed-edgeEvery && now.Sub(h.asked) >= heldAgain && !e.asked {
			h.asked = now
			at[timer.TopicPartition{Topic: k.topic, Partition: k.partition}] = h.at
		}
	}
	if len(at) == 0 {
		return
	}
	e.asked = true
	go func() {
		ctx, cancel := context.WithTimeout(ctx, nameTimeout)
		defer cancel()
		found := make(map[key]name, len(at))
		holders := emitter.FindHolders(ctx, e.in.client, at)
		for tp, offset := range at {
			holder, ok := holders[tp]
			if !ok {
				holder = emitter.Holder{ProducerID: -1, Err: context.DeadlineExceeded}
			}
			found[key{tp.Topic, tp.Partition}] = name{offset, holder, e.stamp(ctx, tp, offset)}
		}
		e.named <- found
	}()
}

// reading returns the partitions of ours whose logs are read.
func (in *instance) reading() map[key]servedPartition {
	in.mu.Lock()
	defer in.mu.Unlock()
	parts := make(map[key]servedPartition, len(in.parts))
	for k, o := range in.parts {
		if s, _ := o.p.Serving(); s == ownership.Gated || s == ownership.Live {
			parts[k] = o.p
		}
	}
	return parts
}

// stamp is the timestamp of a record, whatever transaction it belongs to; zero if it cannot be
// read.
func (e *edges) stamp(ctx context.Context, tp timer.TopicPartition, offset int64) time.Time {
	r := partlog.NewReader(e.in.client, partlog.Log{Topic: tp.Topic, ID: e.in.of(tp.Topic).set.Request.ID, Partition: tp.Partition}, offset)
	r.SetUncommitted()
	r.SetMaxBytes(1)
	r.SetDecompressor(e.in.reader.Unpacker())
	page, err := r.Next(ctx, 0)
	if err != nil || len(page.Records) == 0 || page.Records[0].Offset != offset || page.Records[0].Timestamp.UnixMilli() <= 0 {
		return time.Time{}
	}
	return page.Records[0].Timestamp
}

// take notes the names that were found.
func (e *edges) take(found map[key]name) {
	for k, n := range found {
		h := e.held[k]
		if h == nil || h.at != n.at {
			continue
		}
		if !n.oldest.IsZero() {
			h.by.Oldest = n.oldest
		}
		for _, at := range []time.Time{n.oldest, n.holder.Began} { // the coordinator knows better
			if !at.IsZero() && at.Before(h.seen) {
				h.by.Since = at
			}
		}
		h.name(n.holder)
		h.known = h.by.TransactionalID != "" && !h.by.Oldest.IsZero() // else a broker that was silent may tell
	}
}

// name takes what was found of the producer, unless more was known before.
func (h *holding) name(is emitter.Holder) {
	if is.ProducerID < 0 && h.by.ProducerID != "" || is.TransactionalID == "" && h.by.TransactionalID != "" {
		return
	}
	h.by.Producer = words(is)
	if is.ProducerID >= 0 {
		h.by.ProducerID, h.by.TransactionalID = strconv.FormatInt(is.ProducerID, 10), is.TransactionalID
	}
}

// words name a producer for people.
func words(h emitter.Holder) string {
	switch {
	case h.Err != nil:
		return fmt.Sprintf("a producer whose name is not to be had (DescribeProducers: %v)", h.Err)
	case h.ProducerID < 0:
		return "a producer that its partition's leader does not name"
	case h.TransactionalID == "":
		return fmt.Sprintf("producer %d (its transactional ID is not shown without Describe on it, or while its coordinator does not answer)", h.ProducerID)
	}
	return fmt.Sprintf("producer %d (transactional ID %q)", h.ProducerID, h.TransactionalID)
}
