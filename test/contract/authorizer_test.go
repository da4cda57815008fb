package contract

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// TestTargetNotAuthorized shows the reason that needs a broker with an
// authorizer: targets that may be described and not written to, that may not
// even be described, and one whose right is taken away and given back while the
// service runs. Emissions to other targets, due in the same milliseconds, are
// not held up. A compacted target whose settings the service may not read still
// takes what has a key from a batch that it refuses.
func TestTargetNotAuthorized(t *testing.T) {
	t.Parallel()
	// Who asks is ANONYMOUS, the service and this test alike: everything is
	// allowed where no rule is written.
	c := kafkatest.Start(t, 1,
		kafkatest.WithProperty("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
		kafkatest.WithProperty("allow.everyone.if.no.acl.found", "true"))
	s := &setup{cluster: c, partitions: map[string]int{}}
	s.requests = c.CreateTopic(t, 2, nil)
	target := func(kind string, configs map[string]*string) string {
		name := c.CreateTopic(t, 1, configs, s.requests+"-"+kind)
		s.partitions[name] = 1
		return name
	}
	open, seen, hidden, taken := target("open", nil), target("seen", nil), target("hidden", nil), target("taken", nil)
	secretive := target("secretive", map[string]*string{"cleanup.policy": new("compact")})
	s.target = taken
	s.out, s.dead = kafkatest.Collect(t, c, open, taken, secretive), kafkatest.Collect(t, c, s.requests+deadSuffix)
	adm := kadm.NewClient(c.Client(t))
	rule := func(topic string, ops ...kadm.ACLOperation) *kadm.ACLBuilder {
		return kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).Operations(ops...)
	}
	create := func(rules ...*kadm.ACLBuilder) {
		t.Helper()
		for _, r := range rules {
			results, err := adm.CreateACLs(t.Context(), r)
			for _, res := range results {
				if err == nil {
					err = res.Err
				}
			}
			if err != nil {
				t.Fatalf("create an ACL: %v", err)
			}
		}
	}
	const anyone = "User:*"
	create(
		rule(seen, kadm.OpDescribe, kadm.OpRead, kadm.OpDescribeConfigs).Allow(anyone).AllowHosts("*"),
		rule(hidden, kadm.OpAll).Deny(anyone).DenyHosts("*"),
		rule(secretive, kadm.OpRead, kadm.OpWrite, kadm.OpDescribe).Allow(anyone).AllowHosts("*"),
		rule(secretive, kadm.OpDescribeConfigs).Deny(anyone).DenyHosts("*"),
	)
	s.in = serve(t, rig.Config(t, c.Seeds(), s.requests), 2)
	s.client = c.Client(t)

	var wants []want
	refused := map[string]waterclock.Reason{}
	serial, requests := 0, 0
	send := func(n int, reason waterclock.Reason, topics ...string) {
		t.Helper()
		due := time.Now().Add(700 * time.Millisecond).UnixMilli()
		var recs []*kgo.Record
		var bad []*kgo.Record
		for range n {
			for _, topic := range append([]string{open}, topics...) {
				serial++
				w := plain(request(s.requests, fmt.Sprint("id-", serial), "v", at(due), to(topic)), topic, due)
				recs = append(recs, w.request)
				if topic == open || reason == "" {
					wants = append(wants, w)
				} else {
					bad = append(bad, w.request)
				}
			}
		}
		requests += len(recs)
		produce(t, s.client, recs...)
		for _, r := range bad {
			refused[source(r)] = reason
		}
	}
	done := func() {
		t.Helper()
		s.dead.WaitFor(len(refused), arrive)
		s.out.WaitFor(len(wants), arrive)
	}
	send(20, "", taken)
	done()
	create(rule(taken, kadm.OpWrite).Deny(anyone).DenyHosts("*"), rule(taken, kadm.OpRead, kadm.OpDescribe).Allow(
		anyone).AllowHosts("*"))
	send(20, waterclock.ReasonTargetNotAuthorized, seen, hidden, taken)
	done()
	if _, err := adm.DeleteACLs(t.Context(), rule(taken, kadm.OpAny).Deny(anyone).DenyHosts("*").Allow(
		anyone).AllowHosts("*")); err != nil {
		t.Fatal(err)
	}
	await.For(t, 3*time.Second) // for so long a refusal may be remembered
	send(20, "", taken)
	done()

	// Into one batch for the compacted topic: records with keys, two without.
	due := time.Now().Add(time.Second).UnixMilli()
	var recs []*kgo.Record
	for i := range 30 {
		w := plain(request(s.requests, fmt.Sprint("keyed-", i), "v", at(due), to(secretive)), secretive, due)
		if i%15 == 7 {
			w.request.Headers = append(w.request.Headers, header("timer-target-key-null", "true"))
		} else {
			wants = append(wants, w)
		}
		recs = append(recs, w.request)
	}
	produce(t, s.client, recs...)
	for i := 7; i < 30; i += 15 {
		refused[source(recs[i])] = waterclock.ReasonTargetRefused
	}
	done()
	awaitPending(t, s.in, 0)
	s.dead.Quiet(settled)
	checkAll(t, s.out.Records(), wants, s.partitions)
	lateness(t, s.out.Records(), time.Time{})
	for _, l := range s.dead.Records() {
		src := l.Header("waterclock-source")
		if got := l.Header("waterclock-reason"); got != string(refused[src]) {
			t.Errorf("dead letter of %s, %s: %s (%s), want %q", src, show(l.Key), got, l.Header("waterclock-detail"),
				refused[src])
		}
		delete(refused, src)
	}
	if len(refused) > 0 {
		t.Errorf("no dead letter of %v", refused)
	}
	t.Logf("%d requests, %d dead letters; steps aborted: %v", requests+len(recs), len(s.dead.Records()),
		s.in.Metric("waterclock_transactions_total", "outcome", "aborted"))
}
