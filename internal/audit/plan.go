package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
)

// The stages, in their order: see the package's comment.
const (
	cutStage = iota
	requestStage
	outcomeStage
	afterStage
	stages
)

var stageNames = [stages]string{"changelogs", "requests", "outcomes", "changelogs, on"}

const (
	// openWait bounds the wait for an open transaction that hides the end of a log; openPause is the pause between two
	// looks.
	openWait  = 30 * time.Second
	openPause = 100 * time.Millisecond
	// clockMargin is how much earlier than its request's an emission's timestamp may be, because clocks differ.
	clockMargin = time.Hour
)

// plan lists the logs to read and the records known to be missing. It is stored with the facts.
type plan struct {
	Options string       `json:"Of"` // the options that the plan is for
	Began   time.Time    // when the first stage was planned
	Cut     time.Time    // when the ends of changelogs were asked for last
	Oldest  time.Time    // timestamp of the first requests
	Stages  [][]logRange // planned so far
	Until   map[string]int64

	mu     sync.Mutex // guards the fields below
	Unseen map[string]int64
	Notes  []string
}

// note adds a note about records that cannot be seen, unless the note exists.
func (p *plan) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if note := fmt.Sprintf(format, args...); !slices.Contains(p.Notes, note) {
		p.Notes = append(p.Notes, note)
	}
}

// unseen notes that records of a topic that were written before a time, in Unix ms, are missing. An empty format adds
// no note to the report.
func (p *plan) unseen(topic string, before int64, format string, args ...any) {
	if format != "" {
		p.note(format, args...)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Unseen == nil {
		p.Unseen = make(map[string]int64)
	}
	p.Unseen[topic] = max(p.Unseen[topic], before)
}

// cutAt notes that a changelog was read to a later end.
func (p *plan) cutAt(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Cut = at.UTC().Truncate(time.Millisecond)
}

// unreadable notes that a topic cannot be read.
func (p *plan) unreadable(topic string, err error) {
	p.unseen(topic, math.MaxInt64, "%s cannot be read (%v): its contents are unknown", topic, err)
}

// logRange is a part of a log to be read.
type logRange struct {
	Log      history.Log
	From, To int64
	// Cut: the log begins at From, behind its original beginning. Young: the missing records may never have been
	// written, because events were switched on later.
	Cut, Young bool
	// Noted: the time since when the log has records has been noted, or need not be.
	Noted bool `json:"Told"`
}

// asked identifies an audit. An audit with other options cannot continue with its facts.
func (o *Options) asked() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %d", o.From.UnixMilli(), o.Until.UnixMilli())
	for _, t := range o.Topics {
		fmt.Fprintf(&b, " %s %x %d", t.Name, t.ID, t.Partitions)
	}
	return b.String()
}

// planner decides which logs are read.
type planner struct {
	plan        *plan
	topics      []Topic
	from, until time.Time
	spill       *spill
	client      *kgo.Client
}

// prepare plans a stage, unless an interrupted audit has planned it.
func (p *planner) prepare(ctx context.Context, stage int) error {
	if len(p.plan.Stages) > stage {
		return nil
	}
	if stage == cutStage {
		p.plan.Began = time.Now().UTC().Truncate(time.Millisecond)
		p.plan.Cut = p.plan.Began
	}
	jobs, err := p.stage(ctx, stage)
	if err != nil {
		return err
	}
	p.plan.Stages = append(p.plan.Stages, jobs)
	return p.spill.savePlan(p.plan)
}

func (p *planner) stage(ctx context.Context, stage int) ([]logRange, error) {
	switch stage {
	case cutStage:
		return p.changelogs(ctx)
	case requestStage:
		return p.requests(ctx)
	case outcomeStage:
		return p.outcomes(ctx)
	}
	jobs, err := p.changelogs(ctx)
	for i := range jobs {
		jobs[i].From = p.plan.Stages[cutStage][i].To
	}
	return jobs, err
}

func (p *planner) changelogs(ctx context.Context) ([]logRange, error) {
	var jobs []logRange
	for _, t := range p.topics {
		for n := range t.Partitions {
			jobs = append(jobs, logRange{Log: history.Log{Topic: t.Changelog, Partition: n}})
		}
	}
	return jobs, each(ctx, len(jobs), func(ctx context.Context, i int) error {
		jobs[i].Noted = true
		return p.cut(ctx, &jobs[i])
	})
}

// cut sets where a changelog begins and ends now.
func (p *planner) cut(ctx context.Context, j *logRange) error {
	now := *j
	open, err := p.bound(ctx, &now, openWait)
	if err == nil && open {
		err = fmt.Errorf("a transaction on %s/%d has been open for %s, which hides the pending timers: see "+
			"\"Hanging transactions\" in Kafka's tools (kafka-transactions.sh find-hanging)", j.Log.Topic,
			j.Log.Partition, openWait)
	}
	p.plan.mu.Lock()
	defer p.plan.mu.Unlock()
	*j = now
	return err
}

func (p *planner) requests(ctx context.Context) ([]logRange, error) {
	var names []string
	for _, t := range p.topics {
		names = append(names, t.Name)
	}
	jobs, err := p.since(ctx, names, p.from, 0)
	if err != nil || p.until.IsZero() {
		return jobs, err
	}
	ends, err := kadm.NewClient(p.client).ListOffsetsAfterMilli(ctx, p.until.UnixMilli(), names...)
	if err = cmp.Or(err, ends.Error()); err != nil {
		return nil, fmt.Errorf("find where the span ends: %w", err)
	}
	p.plan.Until = make(map[string]int64)
	ends.Each(func(o kadm.ListedOffset) {
		p.plan.Until[logName(history.Log{Topic: o.Topic, Partition: o.Partition})] = o.Offset
	})
	return jobs, nil
}

func logName(l history.Log) string { return fmt.Sprintf("%s/%d", l.Topic, l.Partition) }

func (p *planner) outcomes(ctx context.Context) (jobs []logRange, err error) {
	targets, others, err := p.spill.targets()
	if err != nil {
		return nil, err
	}
	var own []string
	for _, t := range p.topics {
		for _, name := range []string{t.Letters, t.Events} {
			if name != "" && !slices.Contains(own, name) {
				own = append(own, name)
			}
		}
	}
	readable, err := p.readable(ctx, targets, others, own)
	if err != nil {
		return nil, err
	}
	from := p.from
	if !from.IsZero() {
		from = from.Add(-clockMargin)
	}
	return p.since(ctx, readable, from, openWait)
}

// readable returns the topics that can be read and are not compacted. The contents of the rest are unknown. A foreign
// topic that does not exist gets no note: the audit's settings reject the requests that name it.
func (p *planner) readable(
	ctx context.Context, targets []string, others map[string]bool, own []string,
) (readable []string, err error) {
	absent := 0
	for some := range slices.Chunk(append(slices.Clone(targets), own...), topicsAtOnce) {
		details, err := kadm.NewClient(p.client).ListTopics(ctx, some...)
		if err != nil {
			return nil, fmt.Errorf("describe the targets: %w", err)
		}
		exist := slices.DeleteFunc(slices.Clone(some), func(name string) bool { return details[name].Err != nil })
		configs, err := kadm.NewClient(p.client).DescribeTopicConfigs(ctx, exist...)
		if err != nil {
			return nil, fmt.Errorf("describe the settings of the targets: %w", err)
		}
		for _, name := range some {
			d, why := details[name], ""
			switch {
			case errors.Is(d.Err, kerr.UnknownTopicOrPartition) && others[name]:
				p.plan.unseen(name, math.MaxInt64, "")
				continue
			case errors.Is(d.Err, kerr.UnknownTopicOrPartition):
				if absent++; absent > notedAbsent {
					p.plan.unseen(name, math.MaxInt64, "")
					continue
				}
				why = "does not exist"
			case d.Err != nil:
				why = "cannot be described: " + d.Err.Error()
			case !slices.Contains(own, name):
				why = compaction(configs, name)
			}
			if why != "" {
				p.plan.unseen(name, math.MaxInt64, "%s %s: its contents are unknown", name, why)
				continue
			}
			readable = append(readable, name)
		}
	}
	if more := absent - notedAbsent; more > 0 {
		p.plan.note("%d more targets do not exist: their contents are unknown", more)
	}
	return readable, nil
}

const (
	// topicsAtOnce is how many topics are described with one request.
	topicsAtOnce = 1000
	// notedAbsent bounds the notes about targets that do not exist: any producer of requests can invent names.
	notedAbsent = 100
)

// compaction says why a topic may have lost single records; "" if it has not.
func compaction(configs kadm.ResourceConfigs, name string) string {
	c, err := configs.On(name, nil)
	if err = cmp.Or(err, c.Err); err != nil {
		return "does not show its cleanup.policy: " + err.Error()
	}
	for _, kv := range c.Configs {
		if kv.Key == "cleanup.policy" && kv.Value != nil && strings.Contains(*kv.Value, "compact") {
			return "is compacted"
		}
	}
	return ""
}

// since plans to read topics from a time on, to their ends. wait is how long to wait for open transactions. It is 0 for
// request topics, without which there is no audit.
func (p *planner) since(ctx context.Context, topics []string, from time.Time,
	wait time.Duration) (jobs []logRange, err error) {
	if len(topics) == 0 {
		return nil, nil
	}
	starts, err := kadm.NewClient(p.client).ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, fmt.Errorf("find where logs begin: %w", err)
	}
	var after kadm.ListedOffsets
	if !from.IsZero() {
		if after, err = kadm.NewClient(p.client).ListOffsetsAfterMilli(ctx, from.UnixMilli(), topics...); err != nil {
			return nil, fmt.Errorf("find where the span begins: %w", err)
		}
	}
	for _, topic := range topics {
		err := cmp.Or(kadm.ListedOffsets{topic: starts[topic]}.Error(), kadm.ListedOffsets{topic: after[topic]}.Error())
		if err != nil && wait == 0 {
			return nil, fmt.Errorf("find where %s begins: %w", topic, err)
		}
		if err != nil {
			p.plan.unreadable(topic, err)
			continue
		}
		young := slices.ContainsFunc(p.topics, func(t Topic) bool { return t.Events == topic })
		for n := range int32(len(starts[topic])) {
			start := starts[topic][n].Offset
			j := logRange{Log: history.Log{Topic: topic, Partition: n}, From: start, Young: young}
			if o, ok := after.Lookup(topic, n); ok {
				j.From = max(j.From, o.Offset)
			}
			j.Cut = j.From == start && j.From > 0
			jobs = append(jobs, j)
		}
	}
	return jobs, each(ctx, len(jobs), func(ctx context.Context, i int) error {
		j := &jobs[i]
		from, cut := j.From, j.Cut
		open, err := p.bound(ctx, j, wait)
		j.From, j.Cut = max(from, j.From), cut || j.From > from
		j.To = max(j.To, j.From)
		j.Noted = wait > 0 && !j.Cut && !j.Young
		if open && wait > 0 {
			p.plan.unseen(j.Log.Topic, math.MaxInt64,
				"a transaction on %s/%d has been open for %s: records behind it cannot be read", j.Log.Topic,
				j.Log.Partition, wait)
		}
		return err
	})
}

// bound sets where a log begins and ends. The end is the last stable offset. If a transaction is open, bound waits for
// it.
func (p *planner) bound(ctx context.Context, j *logRange, wait time.Duration) (open bool, err error) {
	log := partlog.Log{Topic: j.Log.Topic, Partition: j.Log.Partition}
	start, stable, end, err := partlog.Bounds(ctx, p.client, log)
	for until := time.Now().Add(wait); err == nil && stable < end && time.Now().Before(until); {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(openPause):
		}
		_, stable, _, err = partlog.Bounds(ctx, p.client, log)
	}
	j.From, j.To = start, stable
	return stable < end, err
}
