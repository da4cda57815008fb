package targets

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// However many missing names are asked for, memory and requests are bounded, and an existing topic is known soon.
func TestUnknownTopicsAreBounded(t *testing.T) {
	t.Parallel()
	const names = 20_000
	c, cl := kafkatest.Fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "there"))
	var asked, questions atomic.Int64
	c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked.Add(int64(len(req.(*kmsg.MetadataRequest).Topics)))
		questions.Add(1)
		return nil, nil, false
	})
	targets := NewMetadata(cl, MetadataOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = targets.Run(ctx) }()
	defer func() { cancel(); <-done }()
	began := time.Now()
	known := false
	for n := 0; n < names || !known; n++ {
		targets.Prefetch(fmt.Sprint("gone-", n%names))
		targets.Prefetch("there")
		if n%100 == 0 {
			await.For(t, 5*time.Millisecond)
		}
		_, known = targets.Cached("there")
		targets.mu.Lock()
		held, waiting := len(targets.topics), len(targets.wanted.topics)+len(targets.wanted.newcomers)
		targets.mu.Unlock()
		if held > maxExamined+1 || waiting > maxExamined+maxNewcomers {
			t.Fatalf("%d names are held, and %d to be asked for", held, waiting)
		}
		if time.Since(began) > time.Minute {
			t.Fatal("a topic that exists is not known")
		}
	}
	// Each name that is kept: once a second and once every 5 s; of the others, some every 100 ms.
	took := time.Since(began)
	if n, most := asked.Load(), int64(maxWanted*(2+took/newcomersPause)+maxExamined*(2+2*took/verdictAgain)); n > most {
		t.Errorf("asked for %d names in %d questions within %s, want %d at most", n, questions.Load(), took, most)
	}
}

// While all places are taken a further topic waits. Places come free as soon as nothing uses their topics any
// more. Topics in use keep their places, even those that were looked up without the lock.
func TestPlacesComeFree(t *testing.T) {
	now := time.Now()
	targets := NewMetadata(nil, MetadataOptions{Now: func() time.Time { return now }})
	for _, name := range []string{"used", "unused"} {
		targets.topics[name] = &cachedTopic{TopicInfo: TopicInfo{Leader: []bool{true}}, fetched: now, used: now,
			maxBytes: 1}
	}
	targets.publish()
	examine := func(n int) bool { name := fmt.Sprint("gone-", n); return targets.Examine(name).Topic == name }
	for n := range maxExamined {
		if !examine(n) {
			t.Fatalf("there is no place for topic %d", n)
		}
	}
	for range 3 {
		now = now.Add(targetRefresh)
		for n := range maxExamined {
			targets.Cached(fmt.Sprint("gone-", n)) // an emission waits for it
		}
		if examine(maxExamined) {
			t.Fatal("there is a place, although all topics are asked for")
		}
	}
	now = now.Add(targetIdle)
	targets.Cached("used")
	if !examine(maxExamined) {
		t.Error("nothing asks for the topics that have the places, and none is free")
	}
	if _, known := targets.Cached("used"); !known {
		t.Error("a topic that is in use was forgotten")
	}
	if _, known := targets.Cached("unused"); known {
		t.Error("a topic that nobody uses was kept")
	}
	if n := len(targets.topics); n != 2 {
		t.Errorf("%d topics are held, want 2", n)
	}
}
