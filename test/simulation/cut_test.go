package simulation

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/timer"
)

// cutSizes are how many batches a log that is cut loses, or some more: it is cut where no transaction is open. kfake
// would end one that loses its marker; a real broker leaves it open. An owner may not notice that it lost one step.
var cutSizes = [...]int{1, 1, 1, 3, 8, 30}

// cut is what a log has lost.
type cut struct {
	topic     string
	partition int32
	from, to  int64 // offsets
	at        time.Time
	ids       map[string]bool
	// Of a changelog: the positions of the last committed step that is left, and of the last that is lost. Requests in
	// between are read again.
	left, settled int64
}

// restartBrokers stops all brokers and starts them again. They have all they had.
func (w *world) restartBrokers(context.Context, trouble) string {
	if err := w.cluster.restart(func() {}); err != nil {
		w.t.Fatal(err)
	}
	return "all"
}

// cutLog has a changelog, or a partition of the request topic, lose its end, as when a replica that lacks it becomes
// leader. It grows again.
func (w *world) cutLog(ctx context.Context, tr trouble) string {
	c := cut{topic: requests, partition: int32(tr.Arg / 2 % partitions), ids: make(map[string]bool), left: -1,
		settled: -1}
	if tr.Arg%2 == 0 {
		c.topic = topics.Changelog(requests)
	}
	epoch := w.cluster.partitions(c.topic)[c.partition].Epoch
	w.watcher.stop()
	if err := w.cluster.restart(func() {
		dir := filepath.Join(w.brokersDir(), "partitions", fmt.Sprintf("%s-%d", c.topic, c.partition))
		if file := lastFile(dir); file == "" {
			return
		} else if err := c.take(file, cutSizes[tr.Arg/8%len(cutSizes)]); err != nil {
			w.t.Fatal(err)
		}
		c.at = time.Now()
	}); err != nil {
		w.t.Fatal(err)
	}
	for i := int32(0); w.cluster.partitions(c.topic)[c.partition].Epoch <= epoch; i++ {
		if err := w.cluster.move(c.topic, c.partition, i%brokers); err != nil {
			w.t.Fatal(err)
		}
	}
	if c.to > c.from {
		w.watcher.lose(&c)
	}
	w.watcher.start()
	if c.to == c.from {
		return "" // no step would be left
	}
	w.mu.Lock()
	w.cuts = append(w.cuts, c)
	w.mu.Unlock()
	if c.topic == requests {
		w.regrow(ctx, &c)
	}
	return fmt.Sprintf("%s/%d from %d to %d", c.topic, c.partition, c.from, c.to)
}

// lastFile is the file of a log that is written to, "" if nothing was written. Its name is the offset of its first
// record.
func lastFile(dir string) string {
	all, _ := filepath.Glob(filepath.Join(dir, "*.dat")) // the pattern is a good one
	if len(all) == 0 {
		return ""
	}
	return slices.MaxFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
}

// regrow makes the request log as long as it was, as operators are told to: with cancels of an ID that nobody uses.
func (w *world) regrow(ctx context.Context, c *cut) {
	cl := w.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer cl.Close()
	for w.cluster.partitions(c.topic)[c.partition].HighWatermark < c.to && ctx.Err() == nil {
		if err := cl.ProduceSync(ctx,
			&kgo.Record{Topic: c.topic, Partition: c.partition, Key: []byte("nobody")}).FirstErr(); err != nil {
			w.refuse("make a log grow again: %v", err)
			return
		}
	}
}

// take takes the last batches from a file of a log, as many as wanted or some more, and notes what was in them.
func (c *cut) take(path string, wanted int) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	type end struct {
		at     int   // in the file
		offset int64 // of the next batch
		left   int64 // position of the last committed step
	}
	var all []kmsg.RecordBatch
	ends := make(map[int]end)     // by the number of batches before, where no transaction is open
	open := make(map[int64]int64) // by producer: the position that its step leaves, -1 for none
	left := int64(-1)
	for at := 0; at < len(raw); {
		size := 12 + int(binary.BigEndian.Uint32(raw[at+8:]))
		var b kmsg.RecordBatch
		if err := b.ReadFrom(raw[at : at+size]); err != nil {
			return err
		}
		at += size
		all = append(all, b)
		records, err := kfake.BatchRecords(b)
		if err != nil {
			return err
		}
		const transactional, control = 1 << 4, 1 << 5
		switch {
		case b.Attributes&control != 0:
			committed := records[0].Key[3] == 1
			if position, is := open[b.ProducerID]; is && committed {
				left = max(left, position)
			}
			delete(open, b.ProducerID)
		case b.Attributes&transactional != 0:
			if _, is := open[b.ProducerID]; !is {
				open[b.ProducerID] = -1
			}
			if c.topic != requests {
				open[b.ProducerID] = max(open[b.ProducerID], lastPosition(records))
			}
		}
		if len(open) == 0 && (c.topic == requests || left >= 0) {
			ends[len(all)] = end{at, b.FirstOffset + int64(b.LastOffsetDelta) + 1, left}
		}
	}
	for keep := len(all) - wanted; keep > 0; keep-- {
		e, is := ends[keep]
		if !is {
			continue
		}
		last := all[len(all)-1]
		c.from, c.to, c.left = e.offset, last.FirstOffset+int64(last.LastOffsetDelta)+1, e.left
		for _, b := range all[keep:] {
			if err := c.note(b); err != nil {
				return err
			}
		}
		return os.Truncate(path, int64(e.at))
	}
	return nil
}

// note notes what was in a batch that is lost.
func (c *cut) note(b kmsg.RecordBatch) error {
	records, err := kfake.BatchRecords(b)
	if err != nil || b.Attributes&(1<<5) != 0 {
		return err
	}
	if c.topic != requests {
		c.settled = max(c.settled, lastPosition(records))
	}
	for _, r := range records {
		id := r.Key
		if c.topic != requests {
			kind, of, err := wire.ParseKey(r.Key)
			if err != nil {
				return err
			}
			if kind != wire.KindTimer {
				continue
			}
			id = of
		}
		c.ids[string(id)] = true
	}
	return nil
}

// lastPosition is that of the last checkpoint among records of a changelog; -1 if there is none.
func lastPosition(records []kmsg.Record) int64 {
	last := int64(-1)
	for _, r := range records {
		if kind, _, err := wire.ParseKey(r.Key); err != nil || kind != wire.KindCheckpoint {
			continue
		}
		if p, err := wire.DecodeCheckpoint(r.Value); err == nil {
			last = p.Position
		}
	}
	return last
}

// lose forgets what a log has lost.
func (w *watcher) lose(c *cut) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := timer.TopicPartition{Topic: c.topic, Partition: c.partition}
	w.behind[at] = min(w.behind[at], c.from)
	kept := 0
	for i, r := range w.records {
		if r.Topic == c.topic && r.Partition == c.partition && r.Offset >= c.from {
			if r.Topic == requests {
				c.ids[string(r.Key)] = true
			}
			continue
		}
		w.records[kept], w.seen[kept] = r, w.seen[i]
		kept++
	}
	w.records, w.seen = w.records[:kept], w.seen[:kept]
}

// excuse says which IDs a log has lost something of, or has others in its place.
func (c *cut) excuse(s *history.Scope, asked []history.Request) {
	of, from, to := &s.Cut, c.from, c.to // offsets of requests
	if c.topic != requests {
		of, from, to = &s.Undone, c.left, c.settled
	}
	if *of == nil {
		*of = map[string]map[string]bool{requests: {}}
	}
	ids := (*of)[requests]
	maps.Copy(ids, c.ids)
	for _, r := range asked {
		if r.Partition == c.partition && r.Offset >= from && r.Offset < to {
			ids[r.ID] = true
		}
	}
}
