package membership

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A token is confirmed as of the sending of the last question on whose answer the client has
// acted. Answers do not count that lay there while the process stood still, or that may say
// that the member was dropped. Without a network the confirmation only grows older.
func TestATokenIsConfirmedOnlyByProcessedAnswers(t *testing.T) {
	const interval, roundTrip = 2 * time.Second, 50 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		p := &heartbeats{now: time.Now, last: time.Now()}
		token := &Token{Topic: "t",
			lease: &lease{heartbeats: p, member: "a", metadata: func() (string, int32) { return "a", 1 }}}
		asked := func(key int16) { p.OnBrokerWrite(kgo.BrokerMetadata{}, key, 0, 0, 0, nil) }
		answered := func(key int16, took time.Duration) {
			asked(key)
			time.Sleep(took)
			p.OnBrokerE2E(kgo.BrokerMetadata{}, key, kgo.BrokerE2E{ReadWait: took})
		}
		confirmed := func(want time.Duration, when string) {
			t.Helper()
			if ago, err := token.Confirmed(); err != nil || ago != want {
				t.Errorf("%s: confirmed %s ago, %v, want %s", when, ago, err, want)
			}
		}
		heartbeat := kmsg.Heartbeat.Int16()
		answered(kmsg.JoinGroup.Int16(), interval) // the join waited for another member
		answered(kmsg.SyncGroup.Int16(), roundTrip)
		confirmed(interval+roundTrip, "nobody has said that it has joined")
		p.joined()
		confirmed(roundTrip, "it has joined")
		for range 20 {
			time.Sleep(interval)
			answered(heartbeat, roundTrip)
		}
		confirmed(interval+2*roundTrip, "heartbeats are answered")
		p.OnBrokerE2E(kgo.BrokerMetadata{}, heartbeat, kgo.BrokerE2E{ReadErr: errors.New("reset")})
		time.Sleep(25 * time.Hour)
		confirmed(25*time.Hour+interval+2*roundTrip, "without a network")
		answered(heartbeat, time.Hour)
		confirmed(26*time.Hour+roundTrip, "an answer from before lay there while the process stood still")
		asked(heartbeat)
		confirmed(time.Hour, "it goes on, so the answer did not say that it was dropped")
		token.kill(ErrRevoked)
		if _, err := token.Confirmed(); !errors.Is(err, ErrRevoked) {
			t.Errorf("revoked, and confirmed: %v", err)
		}
	})
}
