package faults

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// partitions of the request topics.
const partitions = 4

// setup is what a row may spoil: a request topic, and a data directory that is
// empty.
type setup struct {
	c        *kafkatest.Cluster
	requests string
	dir      string
}

func newSetup(t testing.TB, c *kafkatest.Cluster) *setup {
	t.Helper()
	s := &setup{c: c, requests: c.CreateTopic(t, partitions, nil), dir: filepath.Join(t.TempDir(), "data")}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

// words are what is wanted, with the names of the setup.
func (s *setup) words(want []string) []string {
	out := make([]string, len(want))
	for i, w := range want {
		out[i] = strings.NewReplacer("REQUESTS", s.requests, "DIRECTORY", s.dir).Replace(w)
	}
	return out
}

// arguments are those of serve, with a group of the setup's own.
func (s *setup) arguments(more ...string) []string {
	return rig.Arguments(s.c.Seeds(), s.requests, s.dir, more...)
}

// admin runs one change of the topics.
func (s *setup) admin(t testing.TB, change func(context.Context, *kadm.Client) error) {
	t.Helper()
	if err := change(t.Context(), s.c.Admin(t)); err != nil {
		t.Fatal(err)
	}
}

// ensure makes the service's own topics as the service does.
func (s *setup) ensure(t testing.TB) {
	t.Helper()
	s.admin(t, func(ctx context.Context, adm *kadm.Client) error {
		_, _, err := topics.Ensure(ctx, adm, s.requests, topics.Options{Create: true})
		return err
	})
}

// remove deletes a topic and waits until it is gone.
func (s *setup) remove(t testing.TB, topic string) {
	t.Helper()
	kafkatest.DeleteTopics(t, s.c.Admin(t), topic)
	await.Until(t, exitLimit, topic+" is gone", func() bool {
		r, err := s.c.Admin(t).ListTopics(t.Context(), topic)
		return err == nil && !r.Has(topic)
	})
}

// grow gives a topic more partitions and waits until they are there.
func (s *setup) grow(t testing.TB, topic string, to int) {
	t.Helper()
	kafkatest.GrowTopics(t, s.c.Admin(t), to, topic)
	await.Until(t, exitLimit, "more partitions", func() bool {
		r, err := s.c.Admin(t).ListTopics(t.Context(), topic)
		return err == nil && len(r[topic].Partitions) == to
	})
}

// set changes one setting of a topic and waits until it is there.
func (s *setup) set(t testing.TB, topic, setting, value string) {
	t.Helper()
	adm := s.c.Admin(t)
	kafkatest.SetTopic(t, adm, topic, setting, value)
	await.Until(t, exitLimit, setting+" is "+value, func() bool {
		all, err := adm.DescribeTopicConfigs(t.Context(), topic)
		if err != nil {
			return false
		}
		of, err := all.On(topic, nil)
		if err != nil {
			return false
		}
		for _, c := range of.Configs {
			if c.Key == setting && c.MaybeValue() == value {
				return true
			}
		}
		return false
	})
}

func itself(requests string) string { return requests }
