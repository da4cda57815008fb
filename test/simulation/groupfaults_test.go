package simulation

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// stormEvery is the least time between two members that are removed in a storm.
	stormEvery = 100 * time.Millisecond
	// groupEmpty is how long it takes until a group has no member, once all instances are dead.
	groupEmpty = session + 2*time.Second
)

// removeMember has an admin take an instance out of the group. Half of them hear of it late, when others have their
// partitions, and readers ask them meanwhile.
func (w *world) removeMember(ctx context.Context, tr trouble) string {
	h := w.hosts[tr.Host]
	l := h.runs()
	if l == nil || tr.Arg%2 == 0 {
		return w.removeFrom(h)
	}
	heartbeats := l.wire.Hold(kmsg.Heartbeat.Int16())
	defer heartbeats.Release()
	id := w.removeFrom(h)
	if id != "" {
		w.readFrom(ctx, l, session/2)
		id += ", which learned it late"
	}
	return id
}

func (w *world) removeFrom(h *host) string {
	l := h.runs()
	if l == nil {
		return ""
	}
	if is := w.cluster.group(group); is == nil || is.State != "Stable" {
		return "" // kfake never answers a member that is removed while it waits to join; brokers do
	}
	process := l.process.Load()
	m := w.member(group, func(m *kfake.GroupMember) bool {
		return m.InstanceID != nil && *m.InstanceID == h.name ||
			process != nil && strings.HasSuffix(m.ClientID, *process)
	})
	if m == nil {
		return ""
	}
	if err := w.remove(group, m); err != nil {
		w.log.note("%s is not removed: %v", m.MemberID, err)
		return ""
	}
	return m.MemberID
}

// storm takes one instance after another out of the group, as soon as it is stable.
func (w *world) storm(ctx context.Context, tr trouble) string {
	removed := 0
	for i, until := tr.Arg, time.Now().Add(tr.For); time.Now().Before(until) && ctx.Err() == nil; i++ {
		if w.removeFrom(w.serving()[i%len(w.serving())]) != "" {
			removed++
		}
		w.wait(ctx, stormEvery)
	}
	if removed < 2 {
		return ""
	}
	return fmt.Sprint(removed, " times")
}

// moveOffsets has somebody delete the offsets of the group, or set them to the begin or the end of the log, while
// nobody runs.
func (w *world) moveOffsets(ctx context.Context, tr trouble) string {
	_, up := w.allDown(synced)
	defer up()
	w.wait(ctx, groupEmpty)
	var err error
	how := tr.Arg % 3
	if how == 0 {
		all := make(kadm.TopicsSet)
		for p := range int32(partitions) {
			all.Add(requests, p)
		}
		var done kadm.DeleteOffsetsResponses
		if done, err = w.admin.DeleteOffsets(ctx, group, all); err == nil {
			err = done.Error()
		}
	} else {
		all := make(kadm.Offsets)
		for _, p := range w.cluster.partitions(requests) {
			all.AddOffset(requests, p.Partition, p.HighWatermark*int64(how-1), -1)
		}
		err = w.admin.CommitAllOffsets(ctx, group, all)
	}
	if err != nil {
		w.log.note("the group's offsets are not altered: %v", err)
		return ""
	}
	return [...]string{"deleted", "set to the begin", "set to the end"}[how]
}

// promote kills an owner whose partitions others follow, and leaves it dead until they serve them.
func (w *world) promote(ctx context.Context, tr trouble) string {
	h := w.hosts[tr.Host]
	had := h.partitions()
	if w.plan.Settings.Standbys == 0 || len(had) == 0 || !h.kill(diskLost, 0) {
		return ""
	}
	h.hold()
	w.wait(ctx, tr.For)
	promoted := 0
	for n := range w.owners() {
		if had[n] != nil {
			promoted++
		}
	}
	h.release()
	h.start()
	if promoted == 0 {
		return ""
	}
	return fmt.Sprint(promoted, " partitions")
}
