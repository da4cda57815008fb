package emitter

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A coordinator is slow to end a transaction: the log says that the step took long, and that its end did.
func TestTheLogSaysWhichPartOfAStepWasSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLane(t)
		var first sync.Once // only the first one is slow
		c.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
			first.Do(func() { c.SleepControl(func() { time.Sleep(slowStep + 200*time.Millisecond) }) })
			return nil, nil, false
		})
		var log bytes.Buffer
		l.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s := &fakeSource{ems: func() []Emission {
			return []Emission{{Record: &kgo.Record{Topic: "t",
				Value: []byte("v")}}}
		}}
		l.roster.Add(s)
		for range 2 {
			if _, err := l.step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		said := log.String()
		if n := strings.Count(said, "slow step"); n != 1 || strings.Contains(said, "err=") {
			t.Errorf("the log has %d slow steps, want one, and no error:\n%s", n, said)
		}
		for _, part := range []string{" announce=", " offsets=", " produce=", " end=1."} {
			if !strings.Contains(said, part) {
				t.Errorf("the log does not say%s:\n%s", part, said)
			}
		}
	})
}

// Tries in the quarantine, whose partition takes no writes, take long each time, perhaps for hours. They are not logged
// as slow, because the log has already said that the source is held.
func TestSlowTriesAreNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := fakeLane(t)
		silence(t, c, &steady{own: "log"})
		var log bytes.Buffer
		l.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		w := newLane(l.roster, l.background, l.o, "ward")
		w.aborts.apart = true
		t.Cleanup(w.pool.close)
		s := new(fakeSource)
		share := s.Seal("s", &Room{Entries: 1})
		share.member = new(member)
		if err := w.runStep(t.Context(), []*Share{share}); !errors.Is(err, errHeld) {
			t.Fatal(err)
		}
		if said := log.String(); strings.Contains(said, "slow step") {
			t.Error(said)
		}
	})
}
