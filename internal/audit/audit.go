package audit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
)

// Topic is a request topic that is audited.
type Topic struct {
	Name, Changelog, Letters string
	ID                       [16]byte // of the request topic: another cluster, or a recreated topic, has another one
	Events                   string   // without events, or if they are compacted: ""
	Partitions               int32
	// Keeps is how long the changelog keeps a deletion (delete.retention.ms); 0: not known.
	Keeps time.Duration
	Rules *intake.Rules
	// Lenient are the rules with settings that reject nothing. A request that only Rules reject may have been accepted
	// by an instance with other settings, then or now. Nil: the same as Rules.
	Lenient *intake.Rules
}

// Options of Run.
type Options struct {
	Client []kgo.Opt
	Topics []Topic
	// From and Until bound the timestamps of the requests that are judged. A zero From: from the
	// beginnings of the logs. A zero Until: all.
	From, Until time.Time
	// Dir keeps the facts, so that an interrupted audit can continue. Empty: a temporary directory, which is removed.
	Dir string
	// Progress is called now and then. done and total are offsets or IDs, approximately; total is 0 if it is not known.
	Progress func(stage string, done, total int64)
}

// memTable is the size of each of Pebble's two memtables, and cache that of its block cache, in bytes.
const (
	memTable = 64 << 20
	cache    = 64 << 20
)

// workers is how many logs are read, and how many groups of IDs are judged, at the same time.
func workers() int { return min(8, max(2, runtime.GOMAXPROCS(0))) }

// Run audits. An error says why no audit was possible; violations are in the report.
func Run(ctx context.Context, o Options) (_ *Report, err error) {
	dir := o.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "waterclock-audit-"); err != nil {
			return nil, fmt.Errorf("make a directory for the audit: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	if o.Progress == nil {
		o.Progress = func(string, int64, int64) {}
	}
	s, err := open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	plan, err := s.loadPlan(o.asked())
	if err != nil {
		return nil, err
	}
	var clients []*kgo.Client
	for range workers() {
		cl, err := kgo.NewClient(o.Client...)
		if err != nil {
			return nil, fmt.Errorf("build client: %w", err)
		}
		defer cl.Close()
		clients = append(clients, cl)
	}
	p := &planner{plan: plan, topics: o.Topics, from: o.From, until: o.Until, spill: s, client: clients[0]}
	r := &reader{planner: p, sorter: &sorter{o.Topics}, clients: clients, progress: o.Progress}
	for stage := range stages {
		if len(plan.Stages) > stage+1 {
			continue // it was read before the next one was planned
		}
		if err := p.prepare(ctx, stage); err != nil {
			return nil, err
		}
		if err := r.readAll(ctx, stage); err != nil {
			return nil, err
		}
	}
	if err := s.savePlan(plan); err != nil {
		return nil, err
	}
	return (&verdict{topics: o.Topics, plan: plan, spill: s, until: o.Until, progress: o.Progress}).judge(ctx)
}

// options are Pebble's. There is no write-ahead log. After a crash the lost facts are read again, because each batch
// contains the position in the log.
func options() (*pebble.Options, func()) {
	c := pebble.NewCache(cache)
	return &pebble.Options{
		DisableWAL: true, MemTableSize: memTable, Cache: c, Logger: silent{},
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 }, FormatMajorVersion: pebble.FormatNewest,
	}, c.Unref
}

// silent is Pebble's logger. The database reports problems by its errors.
type silent struct{}

var _ pebble.Logger = silent{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
