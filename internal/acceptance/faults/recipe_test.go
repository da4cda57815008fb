package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
	"github.com/waterclock/waterclock/internal/topics"
)

// recipeNoticed is more than it takes an instance to be sure that a topic is gone.
const recipeNoticed = 15 * time.Second

// recipe runs the commands of docs/OPERATIONS.md as they stand there, with the
// setup's names. A comment is what an operator does by other means: steps has it by
// its text. What kafka-topics.sh does is done by the admin client, for it is not
// among the jars that the tests fetch.
func (s *setup) recipe(t testing.TB, name string, steps map[string]func()) {
	t.Helper()
	for _, line := range recipe(t, name) {
		t.Log(line)
		words := strings.Fields(regexp.MustCompile(`\btimers\b`).ReplaceAllString(line, s.requests))
		switch words[0] {
		case "#":
			do, ok := steps[strings.TrimPrefix(line, "# ")]
			if !ok {
				t.Fatalf("recipe %s: nobody knows how to %q", name, line)
			}
			do()
		case "kafka-topics.sh":
			s.kafkaTopics(t, words[1:])
		case "waterclock":
			for i, w := range words {
				switch w {
				case "waterclock.yaml":
					words[i] = s.file(t)
				case "/var/lib/waterclock":
					words[i] = s.dir
				}
			}
			s.command(t, words[1:])
		default:
			t.Fatalf("recipe %s: cannot run %q", name, line)
		}
	}
}

// recipe is the block of docs/OPERATIONS.md that is marked so.
func recipe(t testing.TB, name string) []string {
	t.Helper()
	doc, err := os.ReadFile("../../../docs/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(doc), "<!-- recipe: "+name+" -->\n```sh\n")
	block, _, closed := strings.Cut(rest, "\n```")
	if !ok || !closed {
		t.Fatalf("docs/OPERATIONS.md has no recipe %q", name)
	}
	return strings.Split(block, "\n")
}

// command runs waterclock: to its end, which must be good, or until it is ready if
// it serves; then it is stopped.
func (s *setup) command(t testing.TB, words []string) {
	t.Helper()
	if words[0] == "serve" {
		p := rig.Start(t, words...)
		p.Ready(partitions, readyLimit)
		stopped(t, p)
		return
	}
	p := rig.Exec(t, nil, words...)
	if code := p.Exit(exitLimit); code != 0 {
		t.Fatalf("%v ends with %d: %s", words, code, p.Output())
	}
	t.Log(p.Output())
}

func (s *setup) kafkaTopics(t testing.TB, words []string) {
	t.Helper()
	flags := map[string]string{}
	for i := 2; i+1 < len(words); i++ {
		flags[words[i]] = words[i+1]
	}
	n, err := strconv.Atoi(flags["--partitions"])
	if err != nil {
		t.Fatal(err)
	}
	switch words[2] {
	case "--alter":
		s.grow(t, flags["--topic"], n)
	case "--create":
		s.c.CreateTopic(t, int32(n), nil, flags["--topic"])
	default:
		t.Fatalf("cannot run kafka-topics.sh %v", words)
	}
}

// file is waterclock.yaml of the setup.
func (s *setup) file(t testing.TB) string {
	return write(t, filepath.Join(filepath.Dir(s.dir), "waterclock.yaml"), fmt.Sprintf(
		"brokers: [%s]\nrequests: %s\ntargets: ['*']\ngroup: %s\ndata-dir: %s\n", strings.Join(s.c.Seeds(), ", "), s.requests, s.named(), s.dir))
}

// named is the setup's group.
func (s *setup) named() string {
	if s.group != "" {
		return s.group
	}
	return "group-of-" + s.requests
}

// Each recipe of docs/OPERATIONS.md leads from timers that are pending, through what
// happens to topics and what it says to do, to every timer fired once.
func TestRecipes(t *testing.T) {
	t.Parallel()
	const n = 40
	c := kafkatest.Shared(t)
	for _, v := range []struct {
		name string
		now  int // partitions at the end
		// spoil happens to a running instance, which then is not ready and says this.
		spoil func(testing.TB, *setup)
		says  []string
		again []string // what it says when it is just started again
		more  []string // arguments of the instance
		steps func(testing.TB, *setup) map[string]func()
	}{
		{name: "grown", now: grownTo},
		{
			name: "recreated", now: partitions,
			spoil: func(t testing.TB, s *setup) { s.remove(t, s.requests) },
			says:  []string{"topic REQUESTS: topic is missing, must be there: create it with 4 partitions", "waterclock topics follow"},
		},
		{
			name: "dead letters", now: partitions, more: []string{"--create-topics=false"},
			spoil: func(t testing.TB, s *setup) { s.remove(t, topics.DeadLetters(s.requests)) },
			says:  []string{"topic REQUESTS.waterclock.dead-letters: topic is missing"},
		},
		{
			name: "changelog", now: partitions,
			spoil: func(t testing.TB, s *setup) { s.remove(t, topics.Changelog(s.requests)) },
			says:  []string{"topic REQUESTS.waterclock.changelog: topic is missing, must be there", "A changelog that was lost"},
			again: []string{"REQUESTS.waterclock.changelog holds no checkpoint: the changelog was lost", "keep the data directories of all instances"},
		},
		{name: "group", now: partitions, steps: func(_ testing.TB, s *setup) map[string]func() {
			return map[string]func(){"give the group its new name in waterclock.yaml": func() { s.group = "renamed-" + s.requests }}
		}},
		{name: "cluster", now: partitions, steps: func(t testing.TB, s *setup) map[string]func() {
			from := s.requests
			s.requests += "-elsewhere"
			s.group = "group-of-" + from
			return map[string]func(){"copy the changelog": func() { copyChangelog(t, s.c, from, s.requests) }}
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			s := newSetup(t, c)
			s.ensure(t)
			target := c.CreateTopic(t, 1, nil, s.requests+"-out")
			out := kafkatest.Collect(t, c, target)
			p := rig.Start(t, s.arguments(v.more...)...)
			p.Ready(partitions, readyLimit)
			due := time.Now().Add(25 * time.Second)
			if v.spoil != nil {
				due = due.Add(recipeNoticed)
			}
			s.spread(t, target, "id-", n, due)
			pending(t, n, p)
			if v.spoil != nil {
				v.spoil(t, s)
				t.Log(notReady(t, p, s.words(v.says)...))
			}
			steps := map[string]func(){}
			if v.steps != nil {
				steps = v.steps(t, s)
			}
			stop := func() {
				stopped(t, p)
				if v.again != nil { // an operator's first try, which spoils nothing
					p = rig.Start(t, s.arguments()...)
					t.Log(notReady(t, p, s.words(v.again)...))
					stopped(t, p)
				}
			}
			start := func() {
				p = rig.Start(t, "serve", "--config", s.file(t))
				p.Ready(v.now, readyLimit)
			}
			steps["stop every instance"], steps["start every instance"] = stop, start
			steps["stop producers, and then every instance"], steps["start every instance, and then producers"] = stop, start
			steps["stop producers, and then every instance when they have read all requests"] = stop
			s.recipe(t, v.name, steps)
			rig.Send(t, c.Client(t), &kgo.Record{Topic: s.requests, Key: []byte("id-0")}) // cancels, where it lies now
			pending(t, n-1, p)
			if time.Now().After(due) {
				t.Fatal("the machine is too slow for this test")
			}
			exactly(t, out, n-1)
			p.Settled()
		})
	}
}

// copyChangelog copies a changelog as a mirror does: what is committed, each record
// to the partition of the same number.
func copyChangelog(t testing.TB, c *kafkatest.Cluster, from, to string) {
	t.Helper()
	in := c.Client(t, kgo.ConsumeTopics(topics.Changelog(from)), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	out := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	ends, err := kadm.NewClient(in).ListEndOffsets(t.Context(), topics.Changelog(from))
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) { left[o.Partition] = o.Offset - 1 }) // that is a marker
	for len(left) > 0 {
		fetches := in.PollFetches(t.Context())
		fetches.EachRecord(func(r *kgo.Record) {
			rig.Send(t, out, &kgo.Record{Topic: topics.Changelog(to), Partition: r.Partition, Key: r.Key, Value: r.Value})
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
}
