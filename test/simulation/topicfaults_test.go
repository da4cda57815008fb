package simulation

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafka/topics"
)

// Kafka's names of settings.
const deletions, cleanupPolicy, retention = "delete.retention.ms", "cleanup.policy", "retention.ms"

// alteration is a setting of a topic that somebody alters.
type alteration struct{ topic, setting, value string }

func alterations() []alteration {
	changelog, events, letters := topics.Changelog(requests), topics.Events(requests), topics.DeadLetters(requests)
	const size, timestamps = "max.message.bytes", "message.timestamp.type"
	return []alteration{
		{target, size, "100"}, // nothing fits
		{target, size, "600"}, // a record fits, and two do not
		{letters, size, "100"},
		{events, size, "100"},
		{events, size, "2000"},
		{changelog, size, "100"},
		{changelog, size, "2000"},
		{changelog, cleanupPolicy, "compact,delete"},
		{changelog, deletions, "1000"},
		{changelog, timestamps, "CreateTime"},
		{requests, cleanupPolicy, "compact"},
		{requests, retention, "1000"},
		// And raised.
		{target, size, "10485760"},
		{letters, size, "10485760"},
		{changelog, size, "10485760"},
		{changelog, deletions, "604800000"},
		{changelog, deletions, "604800000"},
		{changelog, "min.compaction.lag.ms", "86400000"},
		{requests, size, "10485760"},
		{requests, retention, "-1"},
	}
}

// alter has somebody alter a setting of a topic, and later alter it back.
func (w *world) alter(ctx context.Context, tr trouble) string {
	all := alterations()
	a := all[tr.Arg%len(all)]
	at := alteration{topic: a.topic, setting: a.setting}
	if _, already := w.altered.LoadOrStore(at, true); already {
		return ""
	}
	defer w.altered.Delete(at)
	before := w.cluster.topic(a.topic).Configs[a.setting]
	if !w.set(ctx, a.topic, a.setting, &a.value) {
		return ""
	}
	w.wait(ctx, tr.For)
	w.set(ctx, a.topic, a.setting, before)
	return fmt.Sprintf("%s of %s is %s", a.setting, a.topic, a.value)
}

// set sets a topic's setting; nil: as the brokers have it.
func (w *world) set(ctx context.Context, topic, setting string, value *string) bool {
	c := kadm.AlterConfig{Op: kadm.SetConfig, Name: setting, Value: value}
	if value == nil {
		c.Op = kadm.DeleteConfig
	}
	done, err := w.admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{c}, topic)
	if err == nil {
		err = done[0].Err
	}
	if err != nil {
		w.refuse("alter %s of %s: %v", setting, topic, err)
	}
	return err == nil
}

// grow adds a partition to the target.
func (w *world) grow(ctx context.Context, _ trouble) string {
	done, err := w.admin.CreatePartitions(ctx, 1, target)
	if err == nil {
		err = done.Error()
	}
	if err != nil {
		w.refuse("add a partition: %v", err)
		return ""
	}
	return fmt.Sprint(len(w.cluster.partitions(target)), " of the target")
}

// recreate deletes the spare target and makes it anew, perhaps only when its timers have become dead letters.
func (w *world) recreate(ctx context.Context, tr trouble) string {
	var err error
	w.cluster.on(func(c *kfake.Cluster) { err = c.DeleteTopic(spare) })
	if err != nil {
		return "" // it is being recreated
	}
	w.wait(ctx, tr.For)
	w.watcher.stop()
	w.cluster.on(func(c *kfake.Cluster) { err = c.CreateTopic(spare, partitions, nil) })
	if err != nil {
		w.refuse("recreate %s: %v", spare, err)
	}
	w.mu.Lock()
	w.recreated = time.Now()
	w.mu.Unlock()
	w.watcher.begin(spare)
	w.watcher.start()
	return spare
}

// compact has the brokers compact the changelogs. kfake's cleaner takes records of open transactions for committed
// ones, so nobody writes meanwhile, and nothing is open. The watcher has read all of it before. Requests are never
// compacted or expired, as kfake would do with them at the same time: the checker could not judge requests that the log
// has lost.
func (w *world) compact(ctx context.Context, _ trouble) string {
	f := w.cluster.fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topics.Changelog(requests),
		Err: kerr.NotEnoughReplicas, Count: -1})
	defer f.Remove()
	for range compactTries {
		if w.requestsStay() && w.changelogsRead() {
			w.cluster.on((*kfake.Cluster).Compact)
			return "changelogs"
		}
		w.wait(ctx, watchEvery)
	}
	return ""
}

// requestsStay reports that brokers who compact the changelogs leave the request topic alone.
func (w *world) requestsStay() bool {
	_, compacted := w.altered.Load(alteration{topic: requests, setting: cleanupPolicy})
	_, expired := w.altered.Load(alteration{topic: requests, setting: retention})
	return !compacted && !expired
}

// compactTries is how often compact looks whether nothing is open.
const compactTries = 60

// changelogsRead reports whether no transaction is open on the changelogs, and the watcher has read all of them.
func (w *world) changelogsRead() bool {
	changelog := topics.Changelog(requests)
	for _, p := range w.cluster.partitions(changelog) {
		if p.LastStableOffset < p.HighWatermark || w.watcher.readTo(changelog, p.Partition) < p.HighWatermark {
			return false
		}
	}
	return true
}

// deletionsKept is how long the changelog keeps deletions from the night on: the least that the service accepts.
const deletionsKept = time.Hour

// night lets nobody run for so long that deletions may be gone from the changelog, and one instance for some seconds
// longer: what the others have done meanwhile is news to its disk.
func (w *world) night(ctx context.Context, tr trouble) string {
	kept := fmt.Sprint(deletionsKept.Milliseconds())
	if _, already := w.altered.LoadOrStore(alteration{topic: topics.Changelog(requests), setting: deletions},
		true); already {
		return "" // it would be set back to what it was before
	}
	if !w.set(ctx, topics.Changelog(requests), deletions, &kept) {
		return ""
	}
	first := w.hosts[tr.Host]
	first.hold()
	first.kill(diskSynced, 0)
	w.wait(ctx, tr.For)
	_, up := w.allDown(synced)
	defer func() {
		first.release()
		up()
	}()
	lasts := []time.Duration{deletionsKept / 3, deletionsKept * 3 / 4, deletionsKept * 7 / 6}
	last := lasts[tr.Arg%len(lasts)]
	w.wait(ctx, last)
	if !w.changelogsRead() {
		w.refuse("in the morning transactions are open: %s", w.watcher.lacks())
		return ""
	}
	if !w.requestsStay() {
		return ""
	}
	w.cluster.on((*kfake.Cluster).Compact)
	return last.String()
}
