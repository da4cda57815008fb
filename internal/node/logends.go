package node

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// endsEvery is how often logEnds asks for the ends of the request logs. endsTimeout bounds each of the two requests
	// for that.
	endsEvery, endsTimeout = time.Second, 2 * time.Second
	// leadersEvery is how often the leaders of the request logs are looked up. Logs with the same leader are asked
	// about together.
	leadersEvery = 5 * time.Second
	// heldNamed is how old a transaction that holds up a log must be to be shown with its producer. Younger ones are
	// normal for transactional producers.
	heldNamed = 2 * time.Second
	// heldAgain is the pause before logEnds asks the brokers again about a producer if their answer was incomplete.
	// nameTimeout bounds one such question.
	heldAgain, nameTimeout = 10 * time.Second, 5 * time.Second
	// heldLogged is the age of a transaction from which on a warning names its producer. The warning is repeated every
	// heldLoggedEvery.
	heldLogged, heldLoggedEvery = 10 * time.Second, time.Minute
)

// logEnds finds open transactions on the request topics that hold up requests, including cancels. Any producer may have
// begun them. Brokers show a read_committed consumer nothing behind the first record of an open transaction, not even
// that there are records. So logEnds asks for the ends of the logs, finds out which producer holds them up, and reports
// to each partition (servedPartition.SetLogEnd). It only reports. The catch-up barrier of package partition decides how
// long an acquisition waits. A cancel that is held up counts as if it were written when the transaction ends.
//
// The goroutine of Run never waits for a broker, except at its end for the goroutines that ask: one about producers,
// one about leaders, and one for each leader of logs. Each asks one question without the lock, and then stores the
// answer with it. So a broker that does not answer delays only the figures of its own logs.
type logEnds struct {
	partitions *partitions
	topics     *servedTopics
	client     *kgo.Client
	log        *slog.Logger
	asking     sync.WaitGroup // the goroutines that ask

	mu    sync.Mutex                                // guards the fields below
	held  map[timer.TopicPartition]*openTransaction // by partition, for those whose logs are held up now
	asked bool                                      // a question about producers is in progress
	// leaders has the leader of each log, as last looked up. Missing logs are looked up together.
	leaders map[timer.TopicPartition]int32
	leading bool // leaders are being looked up
	// when the last lookup of leaders began; zero: the next one is due now
	leadersAt time.Time
	looks     map[int32]bool // leaders that have yet to answer
}

// openTransaction is the transaction at the last stable offset of a partition. It is forgotten when that offset moves,
// when no request is held up any more, or when this instance no longer reads requests of the partition.
type openTransaction struct {
	at     int64     // its first offset
	seen   time.Time // when it was first seen
	by     ownership.Held
	known  bool      // by is as complete as brokers can make it
	asked  time.Time // when the brokers were last asked about its producer
	logged time.Time // when it was last logged
}

// producer is the brokers' answer about the transaction that begins at an offset, and about its producer.
type producer struct {
	at     int64
	holder repair.Holder
	oldest time.Time // timestamp of the record at that offset
}

func newLogEnds(ps *partitions, t *servedTopics, cl *kgo.Client, log *slog.Logger) *logEnds {
	return &logEnds{partitions: ps, topics: t, client: cl, log: log,
		held: make(map[timer.TopicPartition]*openTransaction), looks: make(map[int32]bool)}
}

// Run looks until ctx ends.
func (l *logEnds) Run(ctx context.Context) error {
	beats.Every(ctx, endsEvery, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.look(ctx)
		l.ask(ctx)
	})
	l.asking.Wait()
	return nil
}

// look asks the leaders for the ends of the logs of all partitions that read requests. It leaves out leaders that have
// not answered the last question yet. The lock is held.
func (l *logEnds) look(ctx context.Context) {
	parts := l.reading()
	maps.DeleteFunc(l.held, func(k timer.TopicPartition, _ *openTransaction) bool { return parts[k] == nil })
	topics := make(map[string]bool)
	by := make(map[int32][]timer.TopicPartition)
	for k := range parts {
		topics[k.Topic] = true
		leader := l.leaderOf(k)
		by[leader] = append(by[leader], k)
	}
	for leader, logs := range by {
		if l.looks[leader] {
			continue
		}
		l.looks[leader] = true
		l.asking.Go(func() {
			found := partlog.EndsOf(ctx, l.client, leader, logs, endsTimeout)
			l.mu.Lock()
			defer l.mu.Unlock()
			delete(l.looks, leader)
			if len(found) < len(logs) {
				l.leadersAt = time.Time{} // some may have another leader by now
			}
			l.update(leader, found)
		})
	}
	if len(topics) > 0 && !l.leading && time.Since(l.leadersAt) >= leadersEvery {
		l.leading, l.leadersAt = true, time.Now()
		l.asking.Go(func() {
			led, err := partlog.Leaders(ctx, l.client, slices.Collect(maps.Keys(topics)), leadersEvery)
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.leading = false; err == nil { // otherwise the old leaders are a better guess than none
				l.leaders = led
			}
		})
	}
}

func (l *logEnds) leaderOf(log timer.TopicPartition) int32 {
	if leader, known := l.leaders[log]; known {
		return leader
	}
	return partlog.NoLeader
}

// update reports the ends of logs to their partitions, from the answer of a leader. It ignores the answer of a broker
// that no longer leads the log. The lock is held.
func (l *logEnds) update(leader int32, found map[timer.TopicPartition]partlog.Ends) {
	for k, p := range l.reading() {
		if edge, ok := found[k]; ok && l.leaderOf(k) == leader {
			p.SetLogEnd(l.judge(k, edge, time.Now()))
		}
	}
}

// judge keeps track of the open transaction of one partition, and returns the end of the log for the partition.
func (l *logEnds) judge(k timer.TopicPartition, edge partlog.Ends, now time.Time) ownership.LogEnd {
	h := l.held[k]
	if h != nil && (!edge.Held() || edge.Stable != h.at) {
		if !h.logged.IsZero() {
			l.log.Info("open transaction on the request topic ended, requests behind it can be read", "topic",
				k.Topic, "partition", k.Partition,
				"offset", h.at, "producer", h.by.Producer)
		}
		delete(l.held, k)
		h = nil
	}
	if !edge.Held() {
		return ownership.LogEnd{Ends: edge}
	}
	if h == nil {
		h = &openTransaction{at: edge.Stable, seen: now,
			by: ownership.Held{From: edge.Stable, Since: now, Producer: "a producer that is not known yet"}}
		l.held[k] = h
	}
	end := ownership.LogEnd{Ends: edge, Since: h.by.Since}
	if now.Sub(h.seen) < heldNamed {
		return end
	}
	by := h.by
	by.Count = edge.End - edge.Stable
	if end.By = &by; now.Sub(h.seen) >= heldLogged && now.Sub(h.logged) >= heldLoggedEvery {
		h.logged = now
		l.log.Warn("open transaction of another producer on the request topic, requests behind it cannot be read; see "+
			"docs/OPERATIONS.md, An open transaction on the request topic",
			"topic", k.Topic, "partition", k.Partition, "offset", by.From, "count", by.Count, "producer", by.Producer,
			"start", by.Since)
	}
	return end
}

// ask asks the brokers about producers whose transactions are old enough, unless a question is in progress. The lock is
// held.
func (l *logEnds) ask(ctx context.Context) {
	now, at := time.Now(), make(map[timer.TopicPartition]int64)
	for k, h := range l.held {
		if !h.known && now.Sub(h.seen) >= heldNamed-endsEvery && now.Sub(h.asked) >= heldAgain && !l.asked {
			h.asked = now
			at[k] = h.at
		}
	}
	if len(at) == 0 {
		return
	}
	l.asked = true
	l.asking.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, nameTimeout)
		defer cancel()
		found := make(map[timer.TopicPartition]producer, len(at))
		holders := repair.FindHolders(ctx, l.client, at)
		for tp, offset := range at {
			holder, ok := holders[tp]
			if !ok {
				holder = repair.Holder{ProducerID: -1, Err: context.DeadlineExceeded}
			}
			found[tp] = producer{offset, holder, l.stamp(ctx, tp, offset)}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.asked = false
		l.take(found)
	})
}

// reading returns the partitions of this instance that read requests.
func (l *logEnds) reading() map[timer.TopicPartition]servedPartition {
	parts := l.partitions.all()
	maps.DeleteFunc(parts, func(_ timer.TopicPartition, p servedPartition) bool {
		s, _ := p.Life().Serving()
		return s != ownership.Gated && s != ownership.Live
	})
	return parts
}

// stamp returns the timestamp of a record, even if its transaction is open; zero if the record cannot be read. It does
// not use Reader.Record, because that waits for open transactions. For a timestamp one fetch is enough.
func (l *logEnds) stamp(ctx context.Context, tp timer.TopicPartition, offset int64) time.Time {
	r := partlog.NewReader(l.client, partlog.Log{Topic: tp.Topic, ID: l.topics.of(tp.Topic).set.Request.ID,
		Partition: tp.Partition}, offset)
	r.SetUncommitted()
	r.SetMaxBytes(1)
	r.SetMaxUnpacked(partlog.MaxUnpacked)
	r.SetRoom(1) // one record
	page, err := r.Next(ctx, 0)
	if err != nil || len(page.Records) == 0 || page.Records[0].Offset != offset ||
		page.Records[0].Timestamp.UnixMilli() <= 0 {
		return time.Time{}
	}
	return page.Records[0].Timestamp
}

// take notes the answers about producers. The lock is held.
func (l *logEnds) take(found map[timer.TopicPartition]producer) {
	for k, n := range found {
		h := l.held[k]
		if h == nil || h.at != n.at {
			continue
		}
		if !n.oldest.IsZero() {
			h.by.Oldest = n.oldest
		}
		// The coordinator knows the time better, so its answer comes last.
		for _, at := range []time.Time{n.oldest, n.holder.Began} {
			if !at.IsZero() && at.Before(h.seen) {
				h.by.Since = at
			}
		}
		h.name(n.holder)
		h.known = h.by.TransactionalID != "" && !h.by.Oldest.IsZero() // otherwise brokers may tell more the next time
	}
}

// name notes the brokers' answer about the producer, unless more was known before.
func (o *openTransaction) name(h repair.Holder) {
	if h.ProducerID < 0 && o.by.ProducerID != "" || h.TransactionalID == "" && o.by.TransactionalID != "" {
		return
	}
	o.by.Producer = describe(h)
	if h.ProducerID >= 0 {
		o.by.ProducerID, o.by.TransactionalID = strconv.FormatInt(h.ProducerID, 10), h.TransactionalID
	}
}

// describe describes a producer in words, for people.
func describe(h repair.Holder) string {
	switch {
	case h.Err != nil:
		return fmt.Sprintf("a producer that the brokers do not name (DescribeProducers: %v)", h.Err)
	case h.ProducerID < 0:
		return "a producer that its partition's leader does not name"
	case h.TransactionalID == "":
		return fmt.Sprintf("producer %d (its transactional ID is not shown without Describe on it, or while its "+
			"coordinator does not answer)", h.ProducerID)
	}
	return fmt.Sprintf("producer %d (transactional ID %q)", h.ProducerID, h.TransactionalID)
}
