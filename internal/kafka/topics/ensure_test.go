package topics

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

func TestEnsureCreates(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, v *kafkatest.Setup) {
		v.Create(v.Topic, 3, map[string]string{"max.message.bytes": "2000000", "retention.ms": "3600000"})

		before, err := Inspect(v.Ctx, v.Adm, v.Topic, Options{})
		if err != nil || before.Set.Request.Partitions != 3 || before.Set.Changelog.Partitions != 0 {
			t.Fatalf("before: %+v, %v", before, err)
		}
		if _, _, err := Ensure(v.Ctx, v.Adm, v.Topic, Options{}); err == nil ||
			!strings.Contains(err.Error(), "missing") {
			t.Fatalf("created although it must not, or not needed: %v", err)
		}

		set, problems, err := Ensure(v.Ctx, v.Adm, v.Topic, Options{Create: true})
		if err != nil || len(problems) > 0 {
			t.Fatalf("%v, %v", problems, err)
		}
		const own = 2_000_000 + MessageRoom
		want := Set{
			Request: Topic{
				Name: v.Topic, ID: set.Request.ID, Partitions: 3, MaxMessageBytes: 2_000_000,
				Retention: time.Hour, DeleteRetention: 24 * time.Hour,
			},
			Changelog: Topic{
				Name: v.Topic + ".waterclock.changelog", ID: set.Changelog.ID, Partitions: 3, MaxMessageBytes: own,
				Retention: 7 * 24 * time.Hour, DeleteRetention: 24 * time.Hour,
			},
			DeadLetters: Topic{
				Name: v.Topic + ".waterclock.dead-letters", ID: set.DeadLetters.ID, Partitions: 3, MaxMessageBytes: own,
				Retention: set.DeadLetters.Retention, DeleteRetention: 24 * time.Hour,
			},
		}
		if set != want {
			t.Errorf("\n got %+v\nwant %+v", set, want)
		}
		if set.Request.ID == set.Changelog.ID || set.Changelog.ID == ([16]byte{}) {
			t.Errorf("IDs %x, %x", set.Request.ID, set.Changelog.ID)
		}
		if again, _, err := Ensure(v.Ctx, v.Adm, v.Topic, Options{}); err != nil || again != set {
			t.Errorf("again: %+v, %v", again, err)
		}
		if stop, alert, err := Recheck(v.Ctx, v.Adm, set, Options{}); len(stop)+len(alert) > 0 || err != nil {
			t.Errorf("rechecked: %v, %v, %v", stop, alert, err)
		}
	})
}

// TestEnsureSettings checks the settings that the broker keeps of the requested ones.
func TestEnsureSettings(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, v *kafkatest.Setup) {
		v.Create(v.Topic, 1, nil)
		o := Options{Create: true, Events: true, CompactEvents: true}
		if _, _, err := Ensure(v.Ctx, v.Adm, v.Topic, o); err != nil {
			t.Fatal(err)
		}
		family, err := describe(v.Ctx, v.Adm, v.Topic, o)
		must(t, err)
		for _, own := range family.own() {
			needed, wanted := family.settingsOf(own, 1)
			want := configs(needed)
			if v.Fake == nil { // kfake does not have every setting
				want = configs(needed, wanted)
			}
			for name, value := range want {
				if got := own.settings[name]; got != *value {
					t.Errorf("%s: %s is %q, want %s", own.name, name, got, *value)
				}
			}
		}
	})
}

func TestEnsureRefuses(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, v *kafkatest.Setup) {
		_, _, err := Ensure(v.Ctx, v.Adm, v.Topic, Options{Create: true})
		var fatal *ProblemsError
		if !errors.As(err, &fatal) || len(fatal.Problems) != 1 || fatal.Problems[0].Topic != v.Topic {
			t.Fatalf("no request topic: %v", err)
		}
		if now, err := Inspect(v.Ctx, v.Adm, v.Topic, Options{}); err != nil || now.Set.Request.Partitions != 0 {
			t.Fatalf("the request topic was created: %+v, %v", now.Set, err)
		}

		v.Create(v.Topic, 2, map[string]string{"cleanup.policy": "compact"})
		v.Create(Changelog(v.Topic), 3, nil)
		_, _, err = Ensure(v.Ctx, v.Adm, v.Topic, Options{Create: true})
		if !errors.As(err, &fatal) {
			t.Fatal(err)
		}
		var got []string
		for _, p := range fatal.Problems {
			got = append(got, strings.TrimPrefix(p.Topic, v.Topic)+" "+p.Setting)
		}
		want := []string{
			" cleanup.policy",
			".waterclock.changelog partitions",
			".waterclock.changelog max.message.bytes",
			".waterclock.changelog cleanup.policy",
			".waterclock.changelog message.timestamp.type",
			".waterclock.dead-letters topic", // nothing is made beside such a topic
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A changelog with too few partitions is rejected immediately, and no other topic is created.
func TestEnsureRefusesTooFewPartitions(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, v *kafkatest.Setup) {
		v.Create(v.Topic, 3, nil)
		v.Create(Changelog(v.Topic), 1, map[string]string{"cleanup.policy": "compact",
			"message.timestamp.type": "LogAppendTime", "max.message.bytes": "2000000"})
		began := time.Now()
		_, _, err := Ensure(v.Ctx, v.Adm, v.Topic, Options{Create: true})
		want := Changelog(v.Topic) + ": partitions is 1, must be 3, as of " + v.Topic + ": " + FollowAdvice + orDelete
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if took := time.Since(began); took >= createdLimit/2 {
			t.Errorf("said after %s", took)
		}
		if now, err := Inspect(v.Ctx, v.Adm, v.Topic, Options{}); err != nil || now.Set.DeadLetters.Partitions != 0 {
			t.Errorf("dead letters: %+v, %v", now.Set.DeadLetters, err)
		}
	})
}

// TestEnsureEvents: a topic of events is created if there are any, even for a request topic that had none; it grows
// with it, and is created again when it is gone.
func TestEnsureEvents(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, v *kafkatest.Setup) {
		v.Create(v.Topic, 2, nil)
		none, _, err := Ensure(v.Ctx, v.Adm, v.Topic, Options{Create: true})
		if err != nil || none.Events != (Topic{}) {
			t.Fatalf("%+v, %v", none.Events, err)
		}
		if _, _, err := Ensure(v.Ctx, v.Adm, v.Topic, Options{Events: true}); err == nil ||
			!strings.Contains(err.Error(), Events(v.Topic)+": topic is missing") {
			t.Fatalf("missing: %v", err)
		}
		o := Options{Create: true, Events: true}
		set, problems, err := Ensure(v.Ctx, v.Adm, v.Topic, o)
		if err != nil || len(problems) > 0 || set.Events.Name != Events(v.Topic) || set.Events.Partitions != 2 ||
			set.Events.MaxMessageBytes != createdSmallMessage ||
			set.Changelog != none.Changelog {
			t.Fatalf("%+v, %v, %v", set, problems, err)
		}
		if _, err := v.Adm.DeleteTopic(v.Ctx, set.Events.Name); err != nil {
			t.Fatal(err)
		}
		// a broker may still list a deleted topic for a moment
		await.Until(t, 5*time.Second, "a topic of events that is gone is made again", func() bool {
			stop, _, err := Recheck(v.Ctx, v.Adm, set, Options{Create: true})
			now, gone := Inspect(v.Ctx, v.Adm, v.Topic, o)
			return len(stop) == 0 && errors.Join(err, gone) == nil && now.Set.Events.Partitions == 2 &&
				now.Set.Events.ID != set.Events.ID
		})
	})
}

// TestEnsureTogether lets several instances start at once.
func TestEnsureTogether(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, v *kafkatest.Setup) {
		v.Create(v.Topic, 2, nil)
		const instances = 5
		sets := make([]Set, instances)
		var g errgroup.Group
		for i := range sets {
			other := kadm.NewClient(v.Client())
			g.Go(func() (err error) {
				sets[i], _, err = Ensure(v.Ctx, other, v.Topic, Options{Create: true})
				return err
			})
		}
		must(t, g.Wait())
		for _, s := range sets {
			if s != sets[0] || s.Changelog.Partitions != 2 {
				t.Errorf("got %+v and %+v", s, sets[0])
			}
		}
	})
}

// Another instance has just created the topics, and the broker that is asked for their settings does not know them yet.
func TestEnsureWithABrokerBehind(t *testing.T) {
	v := kafkatest.OnFake(t, 1)
	c := v.Fake
	v.Create(v.Topic, 1, nil)
	want, _, err := Ensure(v.Ctx, v.Adm, v.Topic, Options{Create: true})
	must(t, err)
	behind := 3
	c.ControlKey(kmsg.DescribeConfigs.Int16(), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if behind--; behind < 0 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		for _, r := range req.(*kmsg.DescribeConfigsRequest).Resources {
			answer := kmsg.NewDescribeConfigsResponseResource()
			answer.ResourceType, answer.ResourceName = r.ResourceType, r.ResourceName
			if r.ResourceName != v.Topic {
				answer.ErrorCode = kerr.UnknownTopicOrPartition.Code
			}
			resp.Resources = append(resp.Resources, answer)
		}
		return resp, nil, true
	})
	got, _, err := Ensure(v.Ctx, v.Adm, v.Topic, Options{Create: true})
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestEnsureFailsWithTheBroker(t *testing.T) {
	v := kafkatest.OnFake(t, 1)
	c := v.Fake
	v.Create(v.Topic, 1, nil)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.ClusterAuthorizationFailed, Count: -1})
	_, _, err := Ensure(v.Ctx, v.Adm, v.Topic, Options{Create: true})
	if !errors.Is(err, kerr.ClusterAuthorizationFailed) || !strings.Contains(err.Error(), Changelog(v.Topic)) {
		t.Fatal(err)
	}
}

// Own topics grow if requested, and Recheck recreates missing dead letters, but no changelog.
func TestEnsureGrows(t *testing.T) {
	kafkatest.OnBoth(t, func(t *testing.T, v *kafkatest.Setup) {
		v.Create(v.Topic, 2, nil)
		o := Options{Create: true}
		set, _, err := Ensure(v.Ctx, v.Adm, v.Topic, o)
		must(t, err)
		if r, err := v.Adm.UpdatePartitions(v.Ctx, 5, v.Topic); err != nil || r.Error() != nil {
			t.Fatal(err, r.Error())
		}
		for {
			stop, _, err := Recheck(v.Ctx, v.Adm, set, o)
			must(t, err)
			if len(stop) > 0 {
				if !strings.Contains(stop[0].String(), "partitions is 5, must be 2, as before") {
					t.Errorf("%v", stop)
				}
				break
			}
		}
		if _, _, err := Ensure(v.Ctx, v.Adm, v.Topic, o); err == nil || !strings.Contains(err.Error(), FollowAdvice) {
			t.Errorf("not told to: %v", err)
		}
		o.Grow = true
		grown, _, err := Ensure(v.Ctx, v.Adm, v.Topic, o)
		if err != nil || grown.Changelog.Partitions != 5 || grown.DeadLetters.Partitions != 5 ||
			grown.Changelog.ID != set.Changelog.ID {
			t.Fatalf("%+v, %v", grown, err)
		}
		gone := func(topic string) { kafkatest.DeleteTopics(t, v.Adm, topic) }
		gone(DeadLetters(v.Topic))
		for made := false; !made; {
			stop, alert, err := Recheck(v.Ctx, v.Adm, grown, Options{Create: true})
			if err != nil || len(stop)+len(alert) > 0 {
				t.Fatal(stop, alert, err)
			}
			now, err := Inspect(v.Ctx, v.Adm, v.Topic, Options{})
			made = err == nil && now.Set.DeadLetters.Partitions == 5 && now.Set.DeadLetters.ID != grown.DeadLetters.ID
		}
		gone(Changelog(v.Topic))
		for {
			stop, _, err := Recheck(v.Ctx, v.Adm, grown, Options{Create: true})
			must(t, err)
			if len(stop) > 0 {
				if !stop[0].Gone() || !strings.Contains(stop[0].String(), LostAdvice) {
					t.Errorf("%v", stop)
				}
				break
			}
		}
	})
}
