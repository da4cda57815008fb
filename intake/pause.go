package intake

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/timer"
)

// leastHold is what a partition is held back for at least: less is made up for by
// the next time, for whatever is buffered of a partition that is paused is fetched
// again.
const leastHold = 100 * time.Millisecond

// holds are the reasons why partitions are not fetched: their sink has enough, or
// they are beyond their quota. A partition is fetched when it has neither.
type holds struct {
	reader *Reader

	mu     sync.Mutex // guards what follows; held over Pause and Resume of the client
	quotas map[string]Quota
	of     map[timer.TopicPartition]*hold
}

// hold is why one partition is not fetched.
type hold struct {
	full  bool        // its sink has enough; ended by Resume
	quota *time.Timer // it is beyond its quota; ended by the timer, or by another quota
}

// set changes a quota and goes on with what the one before it holds back.
func (h *holds) set(topic string, q Quota) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.quotas[topic] = q
	for tp, hold := range h.of {
		if tp.Topic == topic && hold.quota != nil {
			hold.quota.Stop()
			h.release(tp, hold)
		}
	}
}

func (h *holds) quota(topic string) Quota {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.quotas[topic]
}

// forget ends what is known of a partition, which is about to be read again or not
// any more.
func (h *holds) forget(tp timer.TopicPartition) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if hold := h.of[tp]; hold != nil && hold.quota != nil {
		hold.quota.Stop()
	}
	delete(h.of, tp)
}

// pause notes whether the sink of a partition has enough.
func (h *holds) pause(tp timer.TopicPartition, full bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.get(tp).full = full
	h.apply(tp)
}

// wait holds a partition back.
func (h *holds) wait(tp timer.TopicPartition, d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hold := h.get(tp)
	if hold.quota != nil {
		return
	}
	hold.quota = time.AfterFunc(d, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.of[tp] == hold && hold.quota != nil { // else it is forgotten, or released by set
			h.release(tp, hold)
		}
	})
	h.apply(tp)
}

func (h *holds) release(tp timer.TopicPartition, hold *hold) {
	hold.quota = nil
	h.apply(tp)
}

func (h *holds) get(tp timer.TopicPartition) *hold {
	if h.of[tp] == nil {
		h.of[tp] = &hold{}
	}
	return h.of[tp]
}

func (h *holds) apply(tp timer.TopicPartition) {
	partitions := map[string][]int32{tp.Topic: {tp.Partition}}
	if hold := h.of[tp]; hold.full || hold.quota != nil {
		h.reader.client.PauseFetchPartitions(partitions)
	} else {
		delete(h.of, tp)
		h.reader.client.ResumeFetchPartitions(partitions)
	}
}

// measure holds records that are about to be handed over to the quota of their
// topic: those beyond it are marked, or the partition is held back behind them. all: behind
// them there is nothing more to be read.
func (r *Reader) measure(tp timer.TopicPartition, reads *reading, recs []*kgo.Record, all bool) {
	if q := r.holds.quota(tp.Topic); q != reads.quota {
		reads.quota, reads.meter = q, nil
		if q.Rate > 0 {
			reads.meter = newMeter(q.Rate)
		}
	}
	m := reads.meter
	if m == nil {
		return
	}
	now := time.Now()
	var wait time.Duration
	for _, rec := range recs {
		if reads.quota.Delay {
			wait = m.delay(rec.Timestamp, now)
		} else if !m.admit(rec.Timestamp, now) {
			markOver(rec)
		}
	}
	if all {
		m.caughtUp(now)
	}
	if wait >= leastHold {
		r.holds.wait(tp, wait)
	}
}
