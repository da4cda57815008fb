package kafkatest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// failing is a test that records how it fails.
type failing struct {
	testing.TB
	said []string
}

func (f *failing) Helper() {}
func (f *failing) Errorf(format string, args ...any) {
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

// A verdict fails the test and is one line for CI, if the file is given.
func TestInexact(t *testing.T) {
	path := filepath.Join(t.TempDir(), "violations")
	t.Setenv(envViolations, path)
	f := &failing{TB: t}
	Inexact(f, "early: %d\nby %s", 1, "a second")
	Inexact(f, "lost")
	if len(f.said) != 2 || f.said[0] != "early: 1\nby a second" {
		t.Errorf("the test says %q", f.said)
	}
	text, err := os.ReadFile(path)
	name := testPackage() + "/TestInexact: "
	if want := name + "early: 1 by a second\n" + name + "lost\n"; err != nil || string(text) != want {
		t.Errorf("noted %q, want %q: %v", text, want, err)
	}
	t.Setenv(envViolations, "")
	if Inexact(f, "without a file"); len(f.said) != 3 {
		t.Errorf("the test says %q", f.said)
	}
}

// An unexpected record is a verdict.
func TestQuietIsBroken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "violations")
	t.Setenv(envViolations, path)
	_, cl := Fake(t, kfake.NumBrokers(1))
	f := &failing{TB: t}
	c := &Collector{t: f, adm: kadm.NewClient(cl), read: make(map[partition]int64), changed: make(chan struct{})}
	done := make(chan struct{})
	go func() { // again and again, because one that came before Quiet began does not count
		record := []*kgo.Record{{Topic: "a"}}
		fetch := kgo.Fetch{Topics: []kgo.FetchTopic{{Topic: "a", Partitions: []kgo.FetchPartition{{Records: record}}}}}
		for ; ; await.For(t, pollInterval) {
			select {
			case <-done:
				return
			default:
				c.add(kgo.Fetches{fetch}, time.Now())
			}
		}
	}()
	if c.Quiet(waitLimit) || len(f.said) != 1 {
		t.Errorf("the test says %q", f.said)
	}
	close(done)
	if text, err := os.ReadFile(path); err != nil || len(text) == 0 {
		t.Errorf("noted %q: %v", text, err)
	}
}
