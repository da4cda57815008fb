package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/kafka/topics"
)

// A problem stops a topic at the first check if it is certain. Otherwise it must last, the longer if the topic is gone.
func TestWhenAProblemStopsATopic(t *testing.T) {
	for name, x := range map[string]struct {
		problem topics.Problem
		after   time.Duration
	}{
		"grown":     {topics.Problem{Setting: "partitions", Certain: true}, 0},
		"recreated": {topics.Problem{Setting: "ID"}, recheckAgain},
		"gone":      {topics.Problem{Setting: "topic"}, recheckGone},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, begin := &recheck{suspect: make(map[string]time.Time)}, time.Now()
				for !r.confirmed("t", []topics.Problem{x.problem}) {
					time.Sleep(time.Second)
				}
				if took := time.Since(begin); took != x.after {
					t.Errorf("after %s, want %s", took, x.after)
				}
			})
		})
	}
}
