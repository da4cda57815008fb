package membership

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A token is certain while the group, by what it has surely heard of the member, cannot have
// dropped it: not when the process stood still, though answers lie there when it wakes up.
func TestATokenIsCertainWhileTheGroupKeepsTheMember(t *testing.T) {
	const session, interval, roundTrip = 10 * time.Second, 2 * time.Second, 50 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		p := &pulse{last: time.Now()}
		token := &Token{Topic: "t", lease: &lease{pulse: p, session: session, member: "a", metadata: func() (string, int32) { return "a", 1 }}}
		asked := func(key int16) { p.OnBrokerWrite(kgo.BrokerMetadata{}, key, 0, 0, 0, nil) }
		answered := func(key int16, took time.Duration) {
			asked(key)
			time.Sleep(took)
			p.OnBrokerE2E(kgo.BrokerMetadata{}, key, kgo.BrokerE2E{ReadWait: took})
		}
		certain := func(want bool, when string) {
			t.Helper()
			if err := token.Certain(); (err == nil) != want {
				t.Errorf("%s: %v", when, err)
			}
		}
		heartbeat := kmsg.Heartbeat.Int16()
		certain(false, "before it has joined")
		answered(kmsg.JoinGroup.Int16(), 2*session) // another member was waited for
		answered(kmsg.SyncGroup.Int16(), roundTrip)
		certain(false, "nobody has said that it has joined")
		p.joined()
		certain(true, "it has joined")
		for range 20 {
			time.Sleep(interval)
			answered(heartbeat, roundTrip)
		}
		certain(true, "heartbeats are answered")
		p.OnBrokerE2E(kgo.BrokerMetadata{}, heartbeat, kgo.BrokerE2E{ReadErr: errors.New("reset")})
		time.Sleep(session - interval - 2*roundTrip)
		certain(true, "the group waits for the session timeout")
		time.Sleep(time.Nanosecond)
		certain(false, "the session timeout is over")
		answered(heartbeat, 2*session)
		certain(false, "an answer from before lay there while the process stood still")
		answered(heartbeat, roundTrip)
		certain(false, "what this one says may be that it was dropped")
		asked(heartbeat)
		certain(true, "it goes on, so it was not")
		token.kill(ErrRevoked)
		certain(false, "revoked")
	})
}
