package crash

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/delaytopics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/statestore"
)

// exitLimit is far more than a refusal takes.
const exitLimit = 30 * time.Second

// scene is what a case of TestRefusals may spoil.
type scene struct {
	c        *kafkatest.Cluster
	requests string // made by the test with four partitions
	dir      string // the data folder, empty
}

// admin runs one change of the topics.
func (p *scene) admin(t testing.TB, change func(context.Context, *kadm.Client) error) {
	t.Helper()
	if err := change(t.Context(), p.c.Admin(t)); err != nil {
		t.Fatal(err)
	}
}

// ensure makes the service's own topics as the service does.
func (p *scene) ensure(t testing.TB) {
	p.admin(t, func(ctx context.Context, adm *kadm.Client) error {
		_, _, err := delaytopics.Ensure(ctx, adm, p.requests, delaytopics.Options{Create: true})
		return err
	})
}

// alter makes the service's own topics and sets one setting of a topic.
func alter(topic func(requests string) string, setting, value string) func(testing.TB, *scene) []string {
	return func(t testing.TB, p *scene) []string {
		p.ensure(t)
		p.admin(t, func(ctx context.Context, adm *kadm.Client) error {
			_, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: setting, Value: &value}}, topic(p.requests))
			return err
		})
		found := value
		until(t, exitLimit, "the setting is there", func() bool {
			rcs, err := p.c.Admin(t).DescribeTopicConfigs(t.Context(), topic(p.requests))
			if err != nil {
				return false
			}
			rc, err := rcs.On(topic(p.requests), nil)
			if err != nil {
				return false
			}
			for _, c := range rc.Configs {
				if c.Key == setting && c.MaybeValue() == found {
					return true
				}
			}
			return false
		})
		return nil
	}
}

func itself(requests string) string { return requests }

// file writes a configuration file and returns the flag that names it.
func file(text string) func(testing.TB, *scene) []string {
	return func(t testing.TB, p *scene) []string {
		path := filepath.Join(p.dir, "..", "waterclock.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{"--config", path}
	}
}

// TestRefusals: what the program can not run on ends it with the right code and
// a line that says what was found and what is needed.
func TestRefusals(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	rig.Binary(t)
	for _, v := range []struct {
		name string
		// spoil changes something and returns further arguments.
		spoil func(testing.TB, *scene) []string
		code  int
		want  []string // REQUESTS stands for the request topic
	}{
		{"request topic missing", func(_ testing.TB, p *scene) []string {
			return []string{"--requests", "none-" + p.requests}
		}, 1, []string{"topic none-REQUESTS", "missing", "create it"}},
		{"request topic compacted", alter(itself, "cleanup.policy", "compact"),
			1, []string{"topic REQUESTS: cleanup.policy is compact, must be delete"}},
		{"request topic is one of the service's own", func(t testing.TB, p *scene) []string {
			p.ensure(t)
			return []string{"--requests", delaytopics.Changelog(p.requests)}
		}, 2, []string{"requests is", "REQUESTS.waterclock.changelog", "belong to the service"}},
		{"changelog not compacted", alter(delaytopics.Changelog, "cleanup.policy", "delete"),
			1, []string{"topic REQUESTS.waterclock.changelog: cleanup.policy is delete, must be compact"}},
		{"changelog compacted and deleted", alter(delaytopics.Changelog, "cleanup.policy", "compact,delete"),
			1, []string{"REQUESTS.waterclock.changelog: cleanup.policy is", "delete", "must be compact"}},
		{"changelog with producers' timestamps", alter(delaytopics.Changelog, "message.timestamp.type", "CreateTime"),
			1, []string{"REQUESTS.waterclock.changelog: message.timestamp.type is CreateTime, must be LogAppendTime"}},
		{"changelog forgets tombstones soon", alter(delaytopics.Changelog, "delete.retention.ms", "60000"),
			1, []string{"REQUESTS.waterclock.changelog: delete.retention.ms is 60000, must be at least 3600000"}},
		{"changelog takes small messages only", alter(delaytopics.Changelog, "max.message.bytes", "1000"),
			1, []string{"REQUESTS.waterclock.changelog: max.message.bytes is 1000, must be at least"}},
		{"dead letters compacted", alter(delaytopics.DeadLetters, "cleanup.policy", "compact"),
			1, []string{"REQUESTS.waterclock.dead-letters: cleanup.policy is compact, must be delete"}},
		{"request topic grew", func(t testing.TB, p *scene) []string {
			p.ensure(t)
			p.admin(t, func(ctx context.Context, adm *kadm.Client) error {
				_, err := adm.UpdatePartitions(ctx, 6, p.requests)
				return err
			})
			until(t, exitLimit, "six partitions", func() bool {
				return len(ends(t, p.c.Admin(t), p.requests)) == 6
			})
			return nil
		}, 1, []string{
			"topic REQUESTS.waterclock.changelog: partitions is 4, must be 6",
			"topic REQUESTS.waterclock.dead-letters: partitions is 4, must be 6",
		}},
		{"changelog missing and not to be created", func(testing.TB, *scene) []string {
			return []string{"--create-topics=false"}
		}, 1, []string{"topic REQUESTS.waterclock.changelog", "missing", "--create-topics"}},
		{"data folder of another cluster", func(t testing.TB, p *scene) []string {
			s, err := statestore.Open(statestore.Options{Dir: filepath.Join(p.dir, "store")})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.BindCluster("another-cluster"); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return nil
		}, 1, []string{"is of cluster another-cluster, needed is one of cluster", "delete this one"}},
		{"data folder is something else", func(t testing.TB, p *scene) []string {
			if err := os.MkdirAll(filepath.Join(p.dir, "store", "db"), 0o755); err != nil {
				t.Fatal(err)
			}
			return nil
		}, 1, []string{"not a waterclock store"}},
		{"data folder is a file", func(t testing.TB, p *scene) []string {
			path := filepath.Join(p.dir, "file")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return []string{"--data-dir", path}
		}, 1, []string{"data folder", "not a directory"}},
		{"unknown configuration key", file("data-dirr: /tmp\n"), 2, []string{"data-dirr", "waterclock.yaml", "did you mean", "data-dir"}},
		{"wrong value of a key", file("session-timeout: soon\n"), 2, []string{"session-timeout", "soon", "waterclock.yaml"}},
		{"unknown flag", func(testing.TB, *scene) []string { return []string{"--brokerz", "x:1"} }, 2, []string{"--brokerz"}},
		{"two settings that do not fit", func(testing.TB, *scene) []string { return []string{"--on-stop", "stay"} },
			2, []string{"on-stop", "instance-id"}},
		{"rebalance shorter than session", func(testing.TB, *scene) []string {
			return []string{"--session-timeout", "20s", "--rebalance-timeout", "10s"}
		}, 2, []string{"rebalance-timeout", "session-timeout"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			p := &scene{c: c, requests: c.CreateTopic(t, crashPartitions, nil), dir: filepath.Join(t.TempDir(), "data")}
			if err := os.Mkdir(p.dir, 0o755); err != nil {
				t.Fatal(err)
			}
			more := v.spoil(t, p)
			refused(t, rig.Start(t, arguments(c.Seeds(), p.requests, p.dir, more...)...), v.code, p.requests, v.want...)
		})
	}
}

// refused waits for the end of a process, which must be of the given code, with
// all the wanted words in its last lines.
func refused(t testing.TB, p *rig.Process, code int, requests string, want ...string) {
	t.Helper()
	if got := p.Exit(exitLimit); got != code {
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
		if w = strings.ReplaceAll(w, "REQUESTS", requests); !strings.Contains(text, w) {
			t.Errorf("no %q in %q", w, text)
		}
	}
	t.Logf("exit %d: %s", code, text)
}

// TestDataFolderInUse: a second process with the same folder refuses, and the
// first goes on.
func TestDataFolderInUse(t *testing.T) {
	t.Parallel()
	c := kafkatest.Shared(t)
	requests, dir := c.CreateTopic(t, crashPartitions, nil), t.TempDir()
	first := rig.Start(t, arguments(c.Seeds(), requests, dir)...)
	first.Ready(crashPartitions, handover)
	refused(t, rig.Start(t, arguments(c.Seeds(), requests, dir)...), 1, requests, "data folder is in use by another process", dir)
	if n := live(first); n != crashPartitions {
		t.Errorf("the first has %d live partitions after that", n)
	}
}
