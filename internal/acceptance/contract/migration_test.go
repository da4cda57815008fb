package contract

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/rig"
)

// TestMigrationByCopy: the program of docs/MIGRATION.md moves what is pending in
// the topic of etf1's scheduler. The newest schedule of each key fires, once, what
// was deleted or has fired does not, and a second copy is refused.
func TestMigrationByCopy(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("python3", "-c", "import confluent_kafka").CombinedOutput(); err != nil {
		t.Skipf("copy.py is not run: python3 with confluent_kafka is not there: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "MIGRATION.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, program, found := strings.Cut(string(text), "```python\n")
	program, _, ends := strings.Cut(program, "```\n")
	if !found || !ends {
		t.Fatal("docs/MIGRATION.md has no program")
	}
	file := filepath.Join(t.TempDir(), "copy.py")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	const keys = 100
	c := kafkatest.Shared(t)
	name := kafkatest.Topic(t)
	schedules := c.CreateTopic(t, 3, map[string]*string{"cleanup.policy": new("compact")}, name+"-schedules")
	requests, out := c.CreateTopic(t, 4, nil, name+"-requests"), c.CreateTopic(t, 2, nil, name+"-out")
	schedule := func(i int, value string, at time.Time) *kgo.Record {
		return request(schedules, fmt.Sprint("video-", i), value, header("scheduler-epoch", strconv.FormatInt(at.Unix(), 10)),
			header("scheduler-target-topic", out), header("scheduler-target-key", fmt.Sprint(i)), header("a", "b"))
	}
	var recs []*kgo.Record
	soon, past := time.Now().Add(20*time.Second), time.Now().Add(-time.Hour)
	for i := range keys {
		recs = append(recs, schedule(i, "old", soon))
		switch i % 4 {
		case 0: // replaced
			recs = append(recs, schedule(i, "new", soon.Add(-5*time.Second)))
		case 1: // deleted
			recs = append(recs, &kgo.Record{Topic: schedules, Key: []byte(fmt.Sprint("video-", i))})
		case 2: // has fired: the scheduler's tombstone has all headers
			done := schedule(i, "", soon)
			done.Value = nil
			recs = append(recs, done)
		case 3: // fell due when the scheduler did not run any more
			recs = append(recs, schedule(i, "missed", past))
		}
	}
	produce(t, c.Client(t), recs...)
	copies := func() (string, error) {
		b, err := exec.Command("python3", file, c.Seeds()[0], schedules, requests).CombinedOutput()
		return string(b), err
	}
	if out, err := copies(); err != nil || out != fmt.Sprintln(len(recs), "records copied") {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := copies(); err == nil || !strings.Contains(out, "has records") {
		t.Errorf("copied again: %v, %s", err, out)
	}
	cfg := rig.Config(t, c.Seeds(), requests)
	cfg.PartitionerCheck = config.CheckDeadLetter // keys lie where murmur2 puts them
	p := cfg.PolicyOf(requests)
	p.Dialect = config.DialectETF1
	cfg.Tenants = map[string]config.Policy{requests: p}
	in := serve(t, cfg, 4)
	emissions := kafkatest.Collect(t, c, out)
	emissions.WaitFor(keys/2, arrive)
	awaitPending(t, in, 0)
	emissions.Quiet(settled)
	values := map[string]int{}
	for _, r := range emissions.Records() {
		values[string(r.Value)]++
		if got := rig.HeaderOf(r, "scheduler-key"); got != "video-"+string(r.Key) {
			t.Errorf("%s has fired with key %s", got, show(r.Key))
		}
	}
	if len(values) != 2 || values["new"] != keys/4 || values["missed"] != keys/4 {
		t.Errorf("fired: %v", values)
	}
	if n := in.Metric("waterclock_dead_letters_total"); n != 0 {
		t.Errorf("%v dead letters", n)
	}
}
