package contract

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// allow and deny write a rule for everybody about a topic. The service and this test alike are ANONYMOUS: everything is
// allowed where no rule is written.
func (s *setup) allow(topic string, ops ...kadm.ACLOperation) {
	s.Helper()
	s.rule(kadm.NewACLs().Topics(topic).Operations(ops...).Allow("User:*").AllowHosts("*"))
}

func (s *setup) deny(topic string, ops ...kadm.ACLOperation) {
	s.Helper()
	s.rule(kadm.NewACLs().Topics(topic).Operations(ops...).Deny("User:*").DenyHosts("*"))
}

func (s *setup) rule(b *kadm.ACLBuilder) {
	s.Helper()
	results, err := s.Cluster.Admin(s.T).CreateACLs(s.Context(), b.ResourcePatternType(kadm.ACLPatternLiteral))
	for _, res := range results {
		if err == nil {
			err = res.Err
		}
	}
	if err != nil {
		s.Fatalf("create an ACL: %v", err)
	}
}

// TestTargetNotAuthorized shows the reason that needs a broker with an authorizer: targets that may be described and
// not written to, that may not even be described, and one whose right is taken away and given back while the service
// runs. Emissions to other targets, due in the same milliseconds, are not held up. A compacted target whose settings
// the service may not read still takes what has a key from a batch that it refuses.
func TestTargetNotAuthorized(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, 1,
		kafkatest.WithProperty("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
		kafkatest.WithProperty("allow.everyone.if.no.acl.found", "true"))
	s := newSetup(t, c, 2, 1)
	open, seen, hidden, taken := s.Target, s.target("seen", 1), s.target("hidden", 1), s.target("taken", 1)
	secretive := s.target("secretive", 1, "cleanup.policy", "compact")
	s.Out = kafkatest.Collect(t, c, open, taken, secretive)
	s.allow(seen, kadm.OpDescribe, kadm.OpRead, kadm.OpDescribeConfigs)
	s.deny(hidden, kadm.OpAll)
	s.allow(secretive, kadm.OpRead, kadm.OpWrite, kadm.OpDescribe)
	s.deny(secretive, kadm.OpDescribeConfigs)
	s.serve(s.Config(), 2)

	serial := 0
	send := func(reason waterclock.Reason, topics ...string) {
		t.Helper()
		due := time.Now().Add(700 * time.Millisecond).UnixMilli()
		var wants []want
		for range 20 {
			for _, topic := range append([]string{open}, topics...) {
				serial++
				w := s.timer(topic, fmt.Sprint("id-", serial), "v", due)
				if topic != open {
					w.refused = reason
				}
				wants = append(wants, w)
			}
		}
		s.send(wants...)
		s.arrived()
	}
	send("", taken)
	s.deny(taken, kadm.OpWrite)
	s.allow(taken, kadm.OpRead, kadm.OpDescribe)
	send(waterclock.ReasonTargetNotAuthorized, seen, hidden, taken)
	anything := kadm.NewACLs().Topics(taken).ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpAny)
	if _, err := c.Admin(t).DeleteACLs(t.Context(),
		anything.Deny("User:*").DenyHosts("*").Allow("User:*").AllowHosts("*")); err != nil {
		t.Fatal(err)
	}
	await.For(t, 3*time.Second) // for so long a refusal may be remembered
	send("", taken)

	// Into one batch for the compacted topic: records with keys, two without.
	due := time.Now().Add(time.Second).UnixMilli()
	var wants []want
	for i := range 30 {
		w := s.timer(secretive, fmt.Sprint("keyed-", i), "v", due)
		if i%15 == 7 {
			w.request.Headers = append(w.request.Headers, header("timer-target-key-null", "true"))
			w.refused = waterclock.ReasonTargetRefused
		}
		wants = append(wants, w)
	}
	s.send(wants...)
	s.end(len(s.sent))
	s.onTime(time.Time{})
}
