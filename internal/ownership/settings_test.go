package ownership

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/statestore"
)

// A view was last in sync three hours ago, by an instance that had found other settings when
// it started. The present settings decide, and the former ones too if deletions were kept
// for less time then.
func TestSettingsAreReadWhereTheyAreUsed(t *testing.T) {
	const retention, timestamps = "delete.retention.ms", "message.timestamp.type"
	for _, x := range []struct {
		name           string
		setting, value string        // altered while the instance runs
		noted          time.Duration // when the view was in sync
		why            string        // why the view is wiped
		err            string
	}{
		{"as found", retention, "86400000", 24 * time.Hour, "", ""},
		{"lowered", retention, "14400000", 24 * time.Hour, "longer ago than 2h", ""},
		{"was lower when it was in sync", retention, "86400000", 4 * time.Hour, "longer ago than 2h", ""},
		{"forever", retention, "-1", 24 * time.Hour, "", ""},
		{"lowered too far", retention, "1800000", 24 * time.Hour, "",
			"delete.retention.ms is 1800000, needed: at least 3600000"},
		{"not the brokers' time", timestamps, "CreateTime", 24 * time.Hour, "",
			"message.timestamp.type is CreateTime, needed: LogAppendTime"},
	} {
		t.Run(x.name, func(t *testing.T) {
			l, _ := online(t)
			cl, set, changelog := l.o.Client, l.o.Topics, l.o.Topics.Changelog.Name
			set.Changelog.DeleteRetention = 24 * time.Hour
			adm := kadm.NewClient(cl)
			kafkatest.SetTopic(t, adm, changelog, timestamps, "LogAppendTime")
			settings := NewSettings(cl, set)

			cp := wire.Checkpoint{Request: set.Request.ID, Changelog: set.Changelog.ID, Step: "s"}
			rec := &kgo.Record{Topic: changelog, Key: wire.CheckpointKey(), Value: cp.AppendTo(nil)}
			must(t, cl.ProduceSync(t.Context(), rec).FirstErr())
			store, err := statestore.Open(
				statestore.Options{Dir: "store", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
			must(t, err)
			defer store.Close()
			handle := store.Partition(statestore.PartitionID{Topic: set.Request.ID}).Acquire()
			replay, err := handle.Replay(set.Changelog.ID, time.Now().Add(-3*time.Hour))
			must(t, err)
			must(t, replay.Checkpoint(cp.AppendTo(nil)))
			replay.At(statestore.Mark{Named: true})
			must(t, replay.Flush(rec.Offset+1))
			if err := handle.Keeps(x.noted); err != nil {
				t.Fatal(err)
			}
			f := NewFollower(FollowOptions{
				Topics: set, Settings: settings, Client: cl, Logger: slog.New(slog.DiscardHandler),
				Metrics: new(counted), Local: &Local{Handle: handle, Slots: semaphore.NewWeighted(1)},
			})

			kafkatest.SetTopic(t, adm, changelog, x.setting, x.value)
			why := ""
			if err = f.ToEnd(t.Context()); err == nil {
				why, err = f.whyUnusable(t.Context(), time.Now())
			}
			if (why == "") != (x.why == "") || !strings.Contains(why, x.why) {
				t.Errorf("it is wiped because %q, want %q", why, x.why)
			}
			if (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) {
				t.Errorf("%v, want %q", err, x.err)
			}
		})
	}
}
