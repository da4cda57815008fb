package repartition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kafka/wire"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/timer"
)

// story makes a history: pending timers, unread requests, more partitions, and further requests after that.
func story(t *testing.T, seed uint64) *setup {
	rnd := rand.New(rand.NewPCG(seed, 0))
	before := 1 + rnd.IntN(4)
	w := newSetup(t, int32(before))
	n := 0
	something := func(do func(id, value string)) {
		for range rnd.IntN(40) {
			n++
			value := fmt.Sprint("v", n)
			if rnd.IntN(3) == 0 {
				value = ""
			}
			do(fmt.Sprint("id", rnd.IntN(30)), value)
		}
	}
	something(func(id, value string) {
		if value != "" {
			w.pending(id, value)
		}
	})
	w.taken()
	something(func(id, value string) { w.request(id, value) })
	w.grow(before + 1 + rnd.IntN(4))
	something(func(id, value string) { w.request(id, value) })
	return w
}

// A leader that does not answer does not keep the move from noticing that its output has failed.
func TestAFailedOutputEndsAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, cl := kafkatest.Bubble(t, 1, topic)
		c.ControlKey(kmsg.Fetch.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			return nil, nil, true
		})
		c.ControlKey(kmsg.ListOffsets.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			return nil, nil, true
		})
		m := mover{o: Options{Admin: cl}, out: &writer{}}
		const after = time.Minute
		time.AfterFunc(after, func() { m.out.fail(errors.New("refused")) })
		begun := time.Now()
		err := m.read(t.Context(), partlog.Log{Topic: topic}, bounds{0, 1}, nil, nil)
		if took := time.Since(begun); err != nil || took < after || took > 2*after {
			t.Errorf("%v after %s", err, took)
		}
	})
}

// All timers, pending, unread or written since, end up in the partition of their requests, and later requests win. A
// second run changes nothing.
func TestTimersFollow(t *testing.T) {
	for seed := range uint64(25) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := story(t, seed)
			r, err := w.run(t.Context(), time.Now)
			if err != nil || r.Done() {
				t.Fatalf("%+v, %v", r, err)
			}
			w.check()
			if r, err := w.run(t.Context(), time.Now); err != nil || !r.Done() {
				t.Errorf("again: %+v, %v", r, err)
			}
		})
	}
}

// If it is stopped at any moment, it has done all or nothing, and the next run does the rest.
func TestFollowEndedAnywhere(t *testing.T) {
	ended := 0
	for seed := range uint64(12) {
		w := story(t, seed)
		before, _ := w.found()
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(seed)*3*time.Millisecond)
		_, err := w.run(ctx, time.Now)
		cancel()
		after, _ := w.found()
		changed := false
		for i := range before {
			changed = changed || len(before[i]) != len(after[i])
		}
		if err != nil && !changed {
			ended++
		}
		r, err := w.run(t.Context(), time.Now)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if changed && !r.Done() {
			t.Errorf("seed %d: a part was done, and the rest now: %+v", seed, r)
		}
		w.check()
	}
	if ended == 0 {
		t.Error("no run was ended")
	}
}

// A recreated request topic starts empty. Its timers are still pending, under generations
// that its requests cannot have.
func TestFollowARecreatedTopic(t *testing.T) {
	w := newSetup(t, 3)
	for i := range 20 {
		w.pending(fmt.Sprint("id", i), "v")
	}
	w.taken()
	kafkatest.DeleteTopics(t, w.adm, topic)
	if _, err := w.adm.CreateTopic(t.Context(), 3, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	w.client()
	w.ensure()
	w.request("id0", "")
	w.request("id1", "new")
	r, err := w.run(t.Context(), time.Now)
	if err != nil || !r.Recreated || r.Moved != 20 {
		t.Fatalf("%+v, %v", r, err)
	}
	w.check()
	pending, _ := w.found()
	for _, here := range pending {
		for id, tm := range here {
			if _, moved := timer.MovedAt(tm.Offset); !moved {
				t.Errorf("%s has generation %d", id, tm.Offset)
			}
		}
	}
}

// If another process writes to the changelog at the same time, or is a member of the group, nothing is changed.
func TestFollowIsAlone(t *testing.T) {
	w := story(t, 3)
	foreign := func() time.Time {
		w.send(&kgo.Record{Topic: w.set.Changelog.Name, Key: wire.TimerKey(nil, []byte("x"))})
		return time.Now()
	}
	if _, err := w.run(t.Context(), foreign); err == nil || !strings.Contains(err.Error(), "another process writes") ||
		!strings.Contains(err.Error(), "nothing was changed") {
		t.Fatalf("a foreign writer: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	member, err := kgo.NewClient(append(w.options(), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic))...)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for ctx.Err() == nil {
			member.PollFetches(ctx)
		}
	}()
	for deadline := time.Now().Add(30 * time.Second); err == nil && time.Now().Before(deadline); {
		err = CheckNoMembers(t.Context(), w.cl, group)
	}
	if err == nil {
		t.Fatal("the member did not join")
	}
	if _, err := w.run(t.Context(), time.Now); err == nil || !strings.Contains(err.Error(), "stop every instance") {
		t.Fatalf("a member: %v", err)
	}
	cancel()
	member.LeaveGroup()
	member.Close()
	if _, err := w.run(t.Context(), time.Now); err != nil {
		t.Fatal(err)
	}
	w.check()
}

// The changelog of another group is left alone, and so is a lost one.
func TestFollowRefuses(t *testing.T) {
	w := story(t, 5)
	o := Options{Client: w.options(), Admin: w.cl, Set: &w.set, Group: "other", Now: time.Now, Rules: &intake.Rules{}}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), `written by group "g"`) {
		t.Errorf("another group: %v", err)
	}
	note := wire.CommitNote{Step: "s", Partitions: 2}
	offsets := make(kadm.Offsets)
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: 1, Metadata: note.String()})
	lost := newSetup(t, 2)
	if err := lost.adm.CommitAllOffsets(t.Context(), group, offsets); err != nil {
		t.Fatal(err)
	}
	if _, err := lost.run(t.Context(), time.Now); err == nil || !strings.Contains(err.Error(), "it was lost") {
		t.Errorf("a changelog that was lost: %v", err)
	}
}

// A lost changelog is written again from a local view, unless the view has not seen the last step. Unread requests are
// applied to it.
func TestFollowRestores(t *testing.T) {
	w := newSetup(t, 2)
	all := make(map[int32][]*timer.Timer)
	for i := range 10 {
		id := fmt.Sprint("id", i)
		r := w.request(id, "v")
		all[r.Partition] = append(all[r.Partition], &timer.Timer{
			ID: []byte(id), Offset: r.Offset, Due: due.UnixMilli(), Occurrence: 1, Value: []byte("v"),
			Target: timer.Target{Topic: "out", Partition: timer.AnyPartition},
		})
	}
	offsets := make(kadm.Offsets)
	for i := range int32(2) {
		note := wire.CommitNote{Step: "claim", Last: "last", Partitions: 2}
		offsets.Add(kadm.Offset{Topic: topic, Partition: i, At: int64(len(all[i])), Metadata: note.String()})
	}
	if err := w.adm.CommitAllOffsets(t.Context(), group, offsets); err != nil {
		t.Fatal(err)
	}
	w.request("id0", "")
	w.request("id1", "later")
	step := "before"
	o := Options{
		Client: w.options(), Admin: w.cl, Set: &w.set, Group: group, Now: time.Now,
		Rules: &intake.Rules{Topic: topic, Partitions: 2, Allow: func(string) bool { return true }},
		View: func(p int32) (*StoredView, error) {
			return &StoredView{Last: wire.Checkpoint{Request: w.set.Request.ID, Position: int64(len(all[p])),
				Step: step, Group: group}, Each: func(fn func(*timer.Timer) error) error {
				for _, tm := range all[p] {
					if err := fn(tm); err != nil {
						return err
					}
				}
				return nil
			}}, nil
		},
	}
	if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "lacks the last steps") {
		t.Fatalf("a view that is behind: %v", err)
	}
	step = "last"
	if r, err := Run(t.Context(), o); err != nil || r.Restored != 2 || r.Taken != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	w.check()
	if r, err := Run(t.Context(), o); err != nil || !r.Done() {
		t.Errorf("again: %+v, %v", r, err)
	}
}

// A paused timer moves as a paused timer. An unread request that depends on the pending timer is rejected and changes
// nothing.
func TestWhatDependsIsRejected(t *testing.T) {
	w := newSetup(t, 1)
	for i := range 20 {
		w.pending(fmt.Sprint("id", i), "v")
	}
	paused := timer.Timer{
		ID: []byte("paused"), Offset: 5, Due: due.UnixMilli(), Occurrence: 1,
		Target:   timer.Target{Topic: "out", Partition: timer.AnyPartition},
		Steering: &timer.Steering{Paused: true, By: 6}, Value: []byte("v"),
	}
	w.send(&kgo.Record{Topic: w.set.Changelog.Name, Key: wire.TimerKey(nil, paused.ID), Value: paused.AppendTo(nil)})
	w.want["paused"] = "v"
	w.taken()
	for i := range 20 {
		id := fmt.Sprint("id", i)
		headers := [][]kgo.RecordHeader{
			{{Key: waterclock.HeaderPause, Value: []byte("true")}},
			{{Key: waterclock.HeaderCancel, Value: []byte("true")},
				{Key: waterclock.HeaderIf, Value: []byte(waterclock.IfPresent)}},
		}[i%2]
		w.send(&kgo.Record{Topic: topic, Partition: w.homeOf(id), Key: []byte(id), Headers: headers})
	}
	w.grow(5)
	r, err := w.run(t.Context(), time.Now)
	if err != nil || r.Refused != 20 || r.Moved == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	w.check()
	pending, _ := w.found()
	moved := pending[w.homeOf("paused")]["paused"]
	if moved == nil || !moved.IsPaused() || w.homeOf("paused") != 0 && moved.Steering.By != moved.Offset {
		t.Errorf("the paused timer is %+v", moved)
	}
}
