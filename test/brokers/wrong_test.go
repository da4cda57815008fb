package brokers

import (
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// partitions of the request topics that are spoilt.
const partitions = 4

// refused waits for the end of a process, which must be of the given code, with all the wanted words in the lines that
// say why. It returns those lines.
func refused(t testing.TB, p *rig.Process, code int, want ...string) string {
	t.Helper()
	if got := p.Exit(rig.Patience); got != code {
		t.Errorf("exit %d, want %d", got, code)
	}
	var said []string
	for line := range strings.Lines(p.Output()) {
		if strings.HasPrefix(line, "waterclock: ") {
			said = append(said, strings.TrimSpace(line))
		}
		if strings.Contains(line, "panic") || strings.HasPrefix(line, "goroutine ") {
			t.Errorf("crashed: %s", line)
		}
	}
	text := strings.Join(said, "\n")
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("no %q in %q", w, text)
		}
	}
	return text
}

// words are what is wanted, with the names of the setup.
func words(s *rig.Setup, want []string) []string {
	out := make([]string, len(want))
	for i, w := range want {
		out[i] = strings.NewReplacer("REQUESTS", s.Requests, "DIRECTORY", s.Dir).Replace(w)
	}
	return out
}

// served runs an instance until it holds a timer that is due far ahead, and stops it.
func served(s *rig.Setup) {
	s.Helper()
	p := s.StartReady()
	s.Send(s.Valued("far", "v", time.Now().Add(time.Hour)))
	s.Pending(1, p)
	p.End()
}

// ensure makes the service's own topics as the service does.
func ensure(s *rig.Setup) {
	s.Helper()
	if _, _, err := topics.Ensure(s.Context(), s.Admin, s.Requests, topics.Options{Create: true}); err != nil {
		s.Fatal(err)
	}
}

// remove deletes a topic and waits until it is gone.
func remove(s *rig.Setup, topic string) {
	s.Helper()
	kafkatest.DeleteTopics(s, s.Admin, topic)
	await.Until(s, rig.Patience, topic+" is gone", func() bool {
		r, err := s.Cluster.Admin(s.T).ListTopics(s.Context(), topic)
		return err == nil && !r.Has(topic)
	})
}

// grow gives a topic more partitions and waits until they are there.
func grow(s *rig.Setup, topic string, to int) {
	s.Helper()
	kafkatest.GrowTopics(s, s.Admin, to, topic)
	await.Until(s, rig.Patience, "more partitions", func() bool {
		r, err := s.Cluster.Admin(s.T).ListTopics(s.Context(), topic)
		return err == nil && len(r[topic].Partitions) == to
	})
}

// set changes one setting of a topic and waits until it is there.
func set(s *rig.Setup, topic, setting, value string) {
	s.Helper()
	kafkatest.SetTopic(s, s.Admin, topic, setting, value)
	await.Until(s, rig.Patience, setting+" is "+value, func() bool {
		all, err := s.Admin.DescribeTopicConfigs(s.Context(), topic)
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
