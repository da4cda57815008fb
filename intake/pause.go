package intake

import (
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/timer"
)

// minPause is the shortest pause of a partition that is beyond its quota. A pause makes the
// client fetch again what it had buffered, so a shorter one is added to the next.
const minPause = 100 * time.Millisecond

// pauses has the reasons why partitions are not fetched. A partition is fetched if it has none.
type pauses struct {
	reader *Reader

	mu     sync.Mutex // guards the following fields; held during Pause and Resume of the client
	quotas map[string]Quota
	of     map[timer.TopicPartition]*pause
}

// pause is why one partition is not fetched.
type pause struct {
	full  bool        // its sink has enough; ended by Resume
	quota *time.Timer // it is beyond its quota; ended by the timer, or by another quota
}

// set changes a quota and ends the pauses that the former quota caused.
func (p *pauses) set(topic string, q Quota) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quotas[topic] = q
	for tp, why := range p.of {
		if tp.Topic == topic && why.quota != nil {
			why.quota.Stop()
			p.release(tp, why)
		}
	}
}

func (p *pauses) quota(topic string) Quota {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.quotas[topic]
}

// forget drops the reasons of a partition that is about to be added or removed.
func (p *pauses) forget(tp timer.TopicPartition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if why := p.of[tp]; why != nil && why.quota != nil {
		why.quota.Stop()
	}
	delete(p.of, tp)
}

// setFull notes whether the sink of a partition has enough.
func (p *pauses) setFull(tp timer.TopicPartition, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.get(tp).full = full
	p.apply(tp)
}

// wait pauses a partition that is beyond its quota.
func (p *pauses) wait(tp timer.TopicPartition, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	why := p.get(tp)
	if why.quota != nil {
		return
	}
	why.quota = time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.of[tp] == why && why.quota != nil { // otherwise forget or set was faster
			p.release(tp, why)
		}
	})
	p.apply(tp)
}

func (p *pauses) release(tp timer.TopicPartition, why *pause) {
	why.quota = nil
	p.apply(tp)
}

func (p *pauses) get(tp timer.TopicPartition) *pause {
	if p.of[tp] == nil {
		p.of[tp] = &pause{}
	}
	return p.of[tp]
}

func (p *pauses) apply(tp timer.TopicPartition) {
	partitions := map[string][]int32{tp.Topic: {tp.Partition}}
	if why := p.of[tp]; why.full || why.quota != nil {
		p.reader.client.PauseFetchPartitions(partitions)
	} else {
		delete(p.of, tp)
		p.reader.client.ResumeFetchPartitions(partitions)
	}
}

// limit applies the quota of the topic to records that are about to be delivered: it marks the
// records beyond it, or pauses the partition after them. all says that nothing follows in the log.
func (r *Reader) limit(tp timer.TopicPartition, reads *reading, recs []*kgo.Record, all bool) {
	if q := r.pauses.quota(tp.Topic); q != reads.quota {
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
	if wait >= minPause {
		r.pauses.wait(tp, wait)
	}
}
