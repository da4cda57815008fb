// Package answers asks the partitions of whole instances, on a real broker, what is
// pending and what became of requests.
package answers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/partition/questions"
	"github.com/waterclock/waterclock/internal/timer/query"
	"github.com/waterclock/waterclock/test/rig"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

const (
	partitions = 4
	patience   = time.Minute
)

// setup is a request topic, and the instances that serve it.
type setup struct {
	t                testing.TB
	c                *kafkatest.Cluster
	requests, target string

	mu   sync.Mutex
	mine []*partition.Partition // every one that was assigned to anybody
}

func newSetup(t testing.TB) *setup {
	c := kafkatest.Shared(t)
	requests := c.CreateTopic(t, partitions, nil)
	return &setup{t: t, c: c, requests: requests, target: c.CreateTopic(t, 2, nil, requests+"-out")}
}

// serve starts an instance.
func (s *setup) serve() *rig.Instance {
	cfg := rig.Config(s.t, s.c.Seeds(), s.requests)
	return rig.Serve(s.t, cfg, node.Options{Assigned: func(p *partition.Partition) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mine = append(s.mine, p)
	}})
}

// ask calls fn with the owner of a partition, until it answers: what must be waited for
// is said to be so.
func (s *setup) ask(n int32, fn func(*partition.Partition) error) {
	s.t.Helper()
	var err error
	_, answered := await.Within(patience, func() bool {
		s.mu.Lock()
		all := slices.Clone(s.mine)
		s.mu.Unlock()
		for _, p := range slices.Backward(all) {
			if p.Life().Requests().Partition != n {
				continue
			}
			if err = fn(p); err == nil {
				return true
			}
			if !query.Again(err) {
				s.t.Fatalf("partition %d: %v", n, err)
			}
		}
		return false
	})
	if !answered {
		s.t.Fatalf("partition %d answers nothing for %s: %v", n, patience, err)
	}
}

// page asks all partitions for a page.
func (s *setup) page(page query.Page) query.List {
	s.t.Helper()
	parts := make([]query.List, partitions)
	for n := range parts {
		s.ask(int32(n), func(p *partition.Partition) (err error) {
			parts[n], err = p.Questions.List(s.t.Context(), page)
			return err
		})
	}
	return query.Merge(page.Order, page.Limit, parts)
}

func (s *setup) count(f query.Filter) (all int64) {
	s.t.Helper()
	for n := range int32(partitions) {
		s.ask(n, func(p *partition.Partition) error {
			c, err := p.Questions.Count(s.t.Context(), f, 0)
			all += c.N
			return err
		})
	}
	return all
}

// watched writes a request, and returns what was decided and what is pending then.
func (s *setup) watched(cl *kgo.Client, r *kgo.Record) (d query.Decision, is *query.Timer) {
	s.t.Helper()
	r.Topic = s.requests
	watchers := make([]*questions.Watcher, partitions)
	for n := range watchers {
		s.ask(int32(n), func(p *partition.Partition) (err error) {
			watchers[n], err = p.Questions.Watch()
			return err
		})
		defer watchers[n].Close()
	}
	rig.Send(s.t, cl, r)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	d, err := watchers[r.Partition].Decision(ctx, r.Offset)
	if err != nil {
		s.t.Fatalf("request %s/%d/%d: %v", r.Topic, r.Partition, r.Offset, err)
	}
	s.ask(r.Partition, func(p *partition.Partition) (err error) {
		is, err = p.Questions.Get(ctx, r.Key)
		return err
	})
	return d, is
}

// live is how many partitions an instance has that are live.
func live(in *rig.Instance) int {
	_, body := in.Readyz()
	return strings.Count(body, `"live"`)
}

func request(id string, headers ...string) *kgo.Record {
	r := &kgo.Record{Key: []byte(id), Value: []byte("v")}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return r
}

func id(i int) string { return fmt.Sprintf("stay-%05d", i) }
