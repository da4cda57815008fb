package partlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

// leadersRefresh is how often leaders are looked up: an unresponsive broker cannot say that it no longer leads.
const leadersRefresh = 5 * time.Second

// findLeaders looks up leaders every leadersRefresh, soon while a partition has none, and when it is woken.
func (c *Consumer) findLeaders(ctx context.Context) {
	wait := backoffMin
	for beats.Sleep(ctx, backoffMin) {
		topics, _ := c.topics()
		c.learnLeaders(ctx, topics)
		pause := leadersRefresh
		if _, leaderless := c.topics(); leaderless {
			pause, wait = wait, min(2*wait, backoffMax)
		} else {
			wait = backoffMin
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-c.leaderless:
		case <-t.C:
		}
		t.Stop()
	}
}

// topics returns the topics that are read, and whether one of their partitions has no known leader.
func (c *Consumer) topics() (names []string, leaderless bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	set := make(map[string]bool)
	for tp, r := range c.readings {
		set[tp.Topic] = true
		leaderless = leaderless || r.node == NoLeader
	}
	return slices.Sorted(maps.Keys(set)), leaderless
}

func (c *Consumer) learnLeaders(ctx context.Context, topics []string) {
	if len(topics) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leadersRefresh) // another broker may answer
	defer cancel()
	resp, err := metadataRequest(topics...).RequestWith(ctx, c.client)
	if err != nil || resp.ErrorCode != 0 {
		return // asked again
	}
	for _, r := range c.learn(resp) {
		c.fail(r, fmt.Errorf("find %v: %w", r.log, ErrTopicGone))
	}
}

// learn takes leaders from metadata. It returns the readings of topics that are gone.
func (c *Consumer) learn(resp *kmsg.MetadataResponse) (gone []*reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	denied, whole, listed := make(map[string]bool), make(map[string]bool), make(map[timer.TopicPartition]bool)
	clear(c.leaders)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.Topic == nil {
			continue
		}
		err := kerr.ErrorForCode(t.ErrorCode)
		denied[*t.Topic] = errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
		whole[*t.Topic] = err == nil
		for j := range t.Partitions {
			p := &t.Partitions[j]
			tp := timer.TopicPartition{Topic: *t.Topic, Partition: p.Partition}
			if listed[tp] = true; p.Leader >= 0 {
				c.leaders[tp] = found{p.Leader, p.LeaderEpoch, t.TopicID}
			}
		}
	}
	for tp, r := range c.readings {
		l, known := c.leaders[tp]
		other := known && r.log.ID != [16]byte{} && r.log.ID != l.id
		missing := whole[tp.Topic] && !listed[tp] // the topic was made again with fewer partitions
		switch {
		case !other && !missing && !denied[tp.Topic]:
			if r.deniedSince = (time.Time{}); known {
				c.follow(r, l)
			}
		case r.deniedSince.IsZero():
			r.deniedSince = time.Now()
		case time.Since(r.deniedSince) >= goneAfter:
			gone = append(gone, r)
		}
	}
	return gone
}

// follow makes a reading use this leader. c.mu is held.
func (c *Consumer) follow(r *reading, l found) {
	if l.node == r.node && l.epoch == r.leader || l.id == r.log.ID && l.epoch < r.leader { // metadata may be behind
		return
	}
	if r.state == asked { // of the former leader, whose answer would be too late
		r.ask++
		c.rest(r)
	}
	if r.node, r.leader = l.node, l.epoch; r.log.ID != l.id {
		r.log.ID = l.id
	}
	if c.nodes[r.node] == nil && c.ctx != nil && c.ctx.Err() == nil {
		wake := beats.NewSignal()
		c.nodes[r.node] = wake
		c.fetchers.Go(func() { c.fetchFrom(c.ctx, l.node, wake) })
	}
	c.wake(r.node)
}
