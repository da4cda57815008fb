package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/pprof"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/node/config"
)

// order holds the instructions for a bare loop.
type order struct {
	Kind   string // one of the kinds below
	Name   string // part of transactional IDs and of the group
	In     string // topic that is read, and whose positions are committed
	Out    string // topic of records that stand for emissions
	State  string // topic of records that stand for changelog records
	IDs    int    // transactional IDs in turn, of each loop
	Loops  int    // pass: loops side by side, each with its part of the partitions; others have one
	Fanout int    // pass: records out for each one in; steps: records for each timer, 3 for a life, 2 for a firing
	Step   int    // pass: records in of a transaction
	// Records is the number of records in. A loop of kind read ends after that many.
	Records int

	// steps: timers that exist in memory only.
	Rate       float64       // a second
	Interval   time.Duration // least time from the start of a step to the start of the next; a full step does not wait
	Prefix     string        // of their IDs
	ValueBytes int
	Partitions int

	// Answer is the answer of a bare server.
	Answer []byte

	Profile string // file for a processor profile; empty: none
}

// The kinds of bare loops and of bare servers. A bare server does the least that an API must do. A produce server
// writes each body to Kafka and responds when all in-sync replicas have it. A commit server writes it in a transaction,
// and commits that.
const (
	kindPass    = "pass"  // consumes In, writes Fanout records for each one, commits positions
	kindSteps   = "steps" // is fed from memory at an even rate
	kindRead    = "read"  // consumes In
	kindProduce = "produce"
	kindCommit  = "commit"
)

// start tells a bare loop to begin. It comes after ready.
type start struct{ At time.Time } // steps: when the first timer is due

// outcome is the last message of a bare loop.
type outcome struct {
	Error string
	Steps int // transactions
}

// ready is its first message.
const ready = "ready"

// RunBare runs a bare loop in this process. The protocol is lines of JSON: it reads an order from in, opens its
// clients, writes "ready", reads a start, does its work and writes an outcome. It ends when in ends, so that its
// processor time can be read until then. A bare server writes its address instead of "ready", and serves until in ends.
func RunBare(ctx context.Context, cfg *config.Config, log *slog.Logger, in io.Reader, out io.Writer) error {
	lines, answers := json.NewDecoder(in), json.NewEncoder(out)
	b := &bare{cfg: cfg, log: log}
	if err := lines.Decode(&b.order); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	if b.Kind == kindProduce || b.Kind == kindCommit {
		return b.serveHTTP(ctx, func(addr string) error { return answers.Encode(addr) }, in)
	}
	err := b.run(ctx, func() (s start, err error) {
		if err = answers.Encode(ready); err == nil {
			err = lines.Decode(&s)
		}
		return s, err
	})
	o := outcome{Steps: int(b.done.Load())}
	if err != nil {
		o.Error = err.Error()
	}
	err = errors.Join(err, answers.Encode(o))
	_, _ = io.Copy(io.Discard, in) // until the bench has read the processor time
	return err
}

// bare is a bare loop. It does the least that the service must do.
type bare struct {
	order
	cfg  *config.Config
	log  *slog.Logger
	done atomic.Int64 // steps
}

// run opens the clients, awaits the start and works.
func (b *bare) run(ctx context.Context, await func() (start, error)) error {
	work := b.read
	if b.Kind != kindRead {
		loops := make([]*stepper, max(1, b.Loops))
		for i := range loops {
			s, err := b.newStepper(ctx, fmt.Sprintf("%s-%d", b.Name, i))
			if err != nil {
				return err
			}
			defer s.close()
			loops[i] = s
		}
		work = func(ctx context.Context, begin start) error { return b.pass(ctx, loops) }
		if b.Kind == kindSteps {
			work = func(ctx context.Context, begin start) error { return b.steps(ctx, loops[0], begin.At) }
		}
	}
	begin, err := await()
	if err != nil {
		return err
	}
	stop, err := b.profiled()
	if err != nil {
		return err
	}
	defer stop()
	return work(ctx, begin)
}

// profiled writes a processor profile, if requested, until stop is called.
func (b *bare) profiled() (stop func(), err error) {
	if b.Profile == "" {
		return func() {}, nil
	}
	f, err := os.Create(b.Profile)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() {
		pprof.StopCPUProfile()
		_ = f.Close()
	}, nil
}

// source reads the partitions of In from the given offsets on. With nil it reads all of In from its start.
func (b *bare) source(from map[int32]kgo.Offset) (*kgo.Client, error) {
	what := kgo.ConsumeTopics(b.In)
	if from != nil {
		what = kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{b.In: from})
	}
	return newClient(b.cfg, b.log, what, kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
}

// pass runs loops side by side that pass on the records of In.
func (b *bare) pass(ctx context.Context, loops []*stepper) error {
	parts, err := b.divided(ctx, loops[0].clients[0], len(loops))
	if err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	for i, s := range loops {
		all.Go(func() error { return b.passOn(ctx, s, parts[i]) })
	}
	return all.Wait()
}

// portion is the part of In that one loop passes on.
type portion struct {
	from    map[int32]kgo.Offset
	records int
}

// divided gives each of n loops its partitions of In. If there are more loops than partitions, each loop gets an equal
// part of a partition.
func (b *bare) divided(ctx context.Context, cl *kgo.Client, n int) ([]portion, error) {
	ends, err := (&admin{client: cl}).ends(ctx, b.In)
	if err != nil {
		return nil, err
	}
	parts := make([]portion, n)
	for i := range parts {
		parts[i].from = make(map[int32]kgo.Offset)
	}
	for partition, end := range ends {
		offset := end.EpochOffset().Offset
		runs := max(1, (n-int(partition)+len(ends)-1)/len(ends))
		for i := range runs {
			first, behind := offset*int64(i)/int64(runs), offset*int64(i+1)/int64(runs)
			loop := (int(partition) + i*len(ends)) % n
			parts[loop].from[partition] = kgo.NewOffset().At(first)
			parts[loop].records += int(behind - first)
		}
	}
	return parts, nil
}

// passOn consumes a portion, produces and commits.
func (b *bare) passOn(ctx context.Context, s *stepper, part portion) error {
	source, err := b.source(part.from)
	if err != nil {
		return err
	}
	defer source.Close()
	for done := 0; done < part.records; {
		recs, positions, err := gather(ctx, source, min(b.Step, part.records-done))
		if err != nil {
			return err
		}
		if err := s.step(ctx, positions, b.fan(recs)); err != nil {
			return err
		}
		done += len(recs)
		b.done.Add(1)
	}
	return nil
}

// gather polls exactly n records.
func gather(ctx context.Context, cl *kgo.Client, n int) ([]*kgo.Record, map[int32]int64, error) {
	recs, positions := make([]*kgo.Record, 0, n), make(map[int32]int64)
	for len(recs) < n {
		fetches := cl.PollRecords(ctx, n-len(recs))
		if err := fetches.Err0(); err != nil {
			return nil, nil, fmt.Errorf("consume: %w", err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			recs = append(recs, r)
			positions[r.Partition] = r.Offset + 1
		})
	}
	return recs, positions, nil
}

// fan makes the records of a step: for each record of In, one for Out and Fanout-1 for State, which stand for changelog
// records.
func (b *bare) fan(recs []*kgo.Record) []*kgo.Record {
	made := make([]*kgo.Record, 0, len(recs)*b.Fanout)
	slab := make([]kgo.Record, len(recs)*b.Fanout)
	for _, r := range recs {
		for i := range b.Fanout {
			m := &slab[len(made)]
			*m = kgo.Record{Topic: b.State, Partition: r.Partition, Key: r.Key}
			switch i {
			case 0:
				m.Topic, m.Value = b.Out, r.Value
				m.Headers = []kgo.RecordHeader{{Key: waterclock.HeaderDue, Value: r.Headers[0].Value}}
			case 1:
				m.Value = r.Value // nil, a tombstone, for the others
			}
			made = append(made, m)
		}
	}
	return made
}

// dueOf returns the due time of timer i of an even rate.
func dueOf(first time.Time, i int, rate float64) time.Time {
	return first.Add(time.Duration(float64(i) / rate * float64(time.Second)))
}

// steps takes due timers, which are due at an even rate. It writes the records of their whole lives, or of their
// firings only.
func (b *bare) steps(ctx context.Context, s *stepper, first time.Time) error {
	var next time.Time
	for i := 0; i < b.Records; {
		if wait := max(time.Until(dueOf(first, i, b.Rate)), time.Until(next)); wait > 0 {
			if !beats.Sleep(ctx, wait) {
				return ctx.Err()
			}
		}
		now, n := time.Now(), 0
		var recs []*kgo.Record
		positions := make(map[int32]int64)
		for ; i < b.Records && n < MaxStep && !dueOf(first, i, b.Rate).After(now); i, n = i+1, n+1 {
			p := int32(i % b.Partitions)
			recs = append(recs, b.life(i, p, now, dueOf(first, i, b.Rate).UnixMilli())...)
			positions[p] = int64(i)
		}
		if n < MaxStep {
			next = now.Add(b.Interval)
		}
		if err := s.step(ctx, positions, recs); err != nil {
			return err
		}
		b.done.Add(1)
	}
	return nil
}

// life makes the records of one timer: first those of its firing, then the one of accepting it. (Their order in a step
// makes no difference.)
func (b *bare) life(i int, p int32, now time.Time, due int64) []*kgo.Record {
	id, value := strconv.AppendInt([]byte(b.Prefix), int64(i), 10),
		payload(make([]byte, 0, b.ValueBytes+7), i, b.ValueBytes)
	return []*kgo.Record{
		{Topic: b.Out, Partition: p, Key: id, Value: value, Timestamp: now,
			Headers: []kgo.RecordHeader{{Key: waterclock.HeaderDue, Value: strconv.AppendInt(nil, due, 10)}}},
		{Topic: b.State, Partition: p, Key: id},
		{Topic: b.State, Partition: p, Key: id, Value: value},
	}[:b.Fanout]
}

// read consumes records and does nothing else.
func (b *bare) read(ctx context.Context, _ start) error {
	source, err := b.source(nil)
	if err != nil {
		return err
	}
	defer source.Close()
	for n := 0; n < b.Records; {
		fetches := source.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		n += fetches.NumRecords()
	}
	return nil
}
