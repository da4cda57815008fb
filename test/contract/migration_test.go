package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/test/rig"
)

// envETF1 names the environment variable with the path of etf1's scheduler. With it, TestMigrationByCopy records
// testdata/etf1/worked-off.json anew.
const envETF1 = "WATERCLOCK_ETF1"

// recording is a topic of schedules as etf1's scheduler left it when it exited. Names of topics stand as {schedules}
// and {out}.
type recording struct {
	Stopped int64      `json:"stopped"` // Unix seconds
	Fired   []string   `json:"fired"`   // keys of the schedules that it fired, sorted
	Records []recorded `json:"records"`
}

type recorded struct {
	Partition int32       `json:"partition"`
	Timestamp int64       `json:"timestamp"` // Unix milliseconds
	Key       string      `json:"key"`
	Value     *string     `json:"value"` // null: a tombstone
	Headers   [][2]string `json:"headers,omitempty"`
}

const schedulePartitions = 3

// etf1Topics are the topics of one migration.
type etf1Topics struct{ schedules, out string }

func (e etf1Topics) name(text string) string {
	return strings.NewReplacer("{schedules}", e.schedules, "{out}", e.out).Replace(text)
}

func (e etf1Topics) anonymous(text string) string {
	return strings.NewReplacer(e.out, "{out}", e.schedules, "{schedules}").Replace(text)
}

// TestMigrationByCopy runs deploy/migration/copy.py on a topic that etf1's own scheduler has worked off. What that
// scheduler fired, also what it fired and could not delete, does not fire again; what it dropped or would never fire is
// not copied; what is pending fires once.
func TestMigrationByCopy(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	python := rig.Python(t, rig.Confluent)
	s := newSetup(t, kafkatest.Shared(t), 4, 2)
	c, names := s.Cluster, etf1Topics{s.Requests + "-schedules", s.Target}
	c.CreateTopic(t, schedulePartitions, map[string]*string{"cleanup.policy": new("compact"),
		"message.timestamp.type": new("CreateTime")}, names.schedules)
	if program := os.Getenv(envETF1); program != "" {
		record(t, c, program)
	}
	rec := readRecording(t)
	if want := []string{"empty-value", "old-key", "old-topic", "own-key", "plain"}; !slices.Equal(rec.Fired, want) {
		t.Fatalf("the recorded scheduler fired %v, want %v", rec.Fired, want)
	}
	now := time.Now().Unix()
	rec.write(t, c, names, now)
	// What etf1 takes and waterclock does not, and the largest that both take.
	wide := func(id string, headers int, more ...string) *kgo.Record {
		r := rig.Request(names.schedules, id, "v", append(more, "scheduler-epoch", fmt.Sprint(now+3600))...)
		for i := range headers {
			r.Headers = append(r.Headers, header(fmt.Sprint("h", i), "v"))
		}
		return r
	}
	const target = "scheduler-target-topic"
	rig.Send(t, c.Client(t), wide(strings.Repeat("k", 512), 1, target, names.out),
		wide(strings.Repeat("k", 513), 1, target, names.out), wide("122", 122, target, names.out),
		wide("123", 123, target, names.out), wide("123-default", 123), wide("124-default", 124))
	run := copier(t, python, c.Seeds()[0], names.schedules, s.Requests)

	// Asked for a later time, the schedule that is due in between looks as if the scheduler had been down: the program
	// asks what to do, and copies nothing.
	if out, err := run("etf1", strconv.FormatInt(now+60, 10)); err == nil || !strings.Contains(out,
		"1 schedules fell due") || !strings.Contains(out, "soon") {
		t.Errorf("with overdue schedules: %v, %s", err, out)
	}
	stopped := strconv.FormatInt(now, 10)
	out, err := run("etf1", stopped)
	want := `4 left out: deleted, or fired and deleted
3 left out: fired, and not deleted
4 left out: never fires: no key, or no scheduler-epoch
1 left out: refused here: a key over 512 bytes
2 left out: refused here: more than 128 headers
8 copied
`
	if err != nil || out != want {
		t.Fatalf("%v: %s\nwant %s", err, out, want)
	}
	if out, err := run("etf1", stopped); err == nil || !strings.Contains(out, "has records") {
		t.Errorf("copied again: %v, %s", err, out)
	}

	cfg := s.policy(func(p *config.Policy) { p.Dialect, p.DefaultTarget = config.DialectETF1, names.out })
	cfg.PartitionerCheck = config.CheckDeadLetter // keys lie where murmur2 puts them
	s.serve(cfg, 4)
	fired := s.Out.WaitFor(1, patience+time.Minute)[0]
	if fired.Header("scheduler-key") != "soon" || string(fired.Value) != "new" {
		t.Errorf("fired %s with value %s", fired.Header("scheduler-key"), show(fired.Value))
	}
	s.in.Balanced(7)
	s.Out.Quiet(quiet)
	if n := s.in.Metric("waterclock_dead_letters_total"); n != 0 {
		t.Errorf("%v dead letters", n)
	}
}

// TestMigrationOfSky copies a topic of sky-uk's scheduler: the newest schedule of each key, unless a null value
// follows.
func TestMigrationOfSky(t *testing.T) {
	t.Parallel()
	python := rig.Python(t, rig.Confluent)
	c := kafkatest.Shared(t)
	base := kafkatest.Topic(t)
	schedules, requests := c.CreateTopic(t, 2, nil, base+"-schedules"), c.CreateTopic(t, 2, nil, base+"-requests")
	done := rig.Request(schedules, "fired", "", "schedule", "expired")
	done.Value = nil
	rig.Send(t, c.Client(t), rig.Request(schedules, "fired", "1"), rig.Request(schedules, "kept", "2"),
		rig.Request(schedules, "kept", "3"), done,
		rig.Request(schedules, strings.Repeat("k", 513), "4"))
	out, err := copier(t, python, c.Seeds()[0], schedules, requests)("sky")
	if err != nil || out != "1 left out: deleted, or fired and deleted\n1 left out: refused here: a key over 512 "+
		"bytes\n1 copied\n" {
		t.Fatalf("%v: %s", err, out)
	}
	got := kafkatest.Collect(t, c, requests).WaitFor(1, patience)
	if string(got[0].Key) != "kept" || string(got[0].Value) != "3" {
		t.Errorf("copied %s with value %s", show(got[0].Key), show(got[0].Value))
	}
}

// copier returns a function that runs deploy/migration/copy.py and returns what it prints; if it fails, with what it
// says about that.
func copier(t *testing.T, python string, args ...string) func(more ...string) (string, error) {
	t.Helper()
	file := filepath.Join("..", "..", "deploy", "migration", "copy.py")
	return func(more ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), python, slices.Concat([]string{file}, args, more)...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			return string(out) + errs.String(), err
		}
		if errs.Len() > 0 { // librdkafka logs there what it makes up for, such as a connection that broke
			t.Logf("%s", errs.String())
		}
		return string(out), nil
	}
}

func recordingFile() string { return filepath.Join("testdata", "etf1", "worked-off.json") }

func readRecording(t *testing.T) (rec recording) {
	t.Helper()
	b, err := os.ReadFile(recordingFile())
	if err == nil {
		err = json.Unmarshal(b, &rec)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// write produces the records as if the scheduler had exited at the given Unix second.
func (rec *recording) write(t *testing.T, c *kafkatest.Cluster, names etf1Topics, stopped int64) {
	t.Helper()
	later := stopped - rec.Stopped
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var out []*kgo.Record
	for _, r := range rec.Records {
		k := &kgo.Record{Topic: names.schedules, Partition: r.Partition, Key: []byte(r.Key),
			Timestamp: time.UnixMilli(r.Timestamp + later*1000)}
		if r.Value != nil {
			k.Value = []byte(*r.Value)
		}
		for _, h := range r.Headers {
			value := names.name(h[1])
			if due, err := strconv.ParseInt(value, 10, 64); err == nil && h[0] == "scheduler-epoch" && due > 0 {
				value = strings.TrimSuffix(value, strings.TrimPrefix(value, "+")) + strconv.FormatInt(due+later, 10)
			}
			k.Headers = append(k.Headers, header(h[0], value))
		}
		out = append(out, k)
	}
	rig.Send(t, cl, out...)
}

// record has the given program, etf1's scheduler, work off a topic, and keeps what it leaves there.
func record(t *testing.T, c *kafkatest.Cluster, program string) {
	t.Helper()
	base := kafkatest.Topic(t)
	names := etf1Topics{base + "-recorded", base + "-recorded-out"}
	c.CreateTopic(t, schedulePartitions, nil, names.schedules)
	c.CreateTopic(t, 1, nil, names.out)
	history := c.CreateTopic(t, 1, nil, base+"-history")
	var log bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.Env = append(os.Environ(), "BOOTSTRAP_SERVERS="+c.Seeds()[0], "SCHEDULES_TOPICS="+names.schedules,
		"GROUP_ID="+base, "HISTORY_TOPIC="+history, "METRICS_ADDR=127.0.0.1:0", "SERVER_ADDR=127.0.0.1:0")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill() //nolint:errcheck // it has exited, but for a test that fails
	emissions := kafkatest.Collect(t, c, names.out)
	cl := c.Client(t) // murmur2: the scheduler's own deletions lie on other partitions
	soon := time.Now().Unix() + 15
	schedule := func(id, value, due string, more ...string) *kgo.Record {
		return rig.Request(names.schedules, id, value, append([]string{"scheduler-epoch", due,
			"scheduler-target-topic", names.out, "scheduler-target-key", "k-" + id}, more...)...)
	}
	at := func(in int64) string { return strconv.FormatInt(soon+in, 10) }
	rig.Send(t, cl,
		schedule("plain", "v", at(0)),
		schedule("empty-value", "", at(0)),
		schedule("own-key", "v", at(0), "scheduler-key", "own-key"),
		schedule("old-key", "v", at(0), "scheduler-key", "somebody-else"),
		schedule("old-topic", "v", at(0), "scheduler-topic", history),
		schedule("epoch-zero", "v", "0"), schedule("no-number", "v", "tomorrow"), schedule("  ", "v", at(3600)),
		rig.Request(names.schedules, "no-epoch", "v", "scheduler-target-topic", names.out),
		schedule("soon", "old", at(3600)), schedule("soon", "new", at(45)),
		schedule("later", "v", at(3600)), schedule("plus", "v", "+"+at(3600)), schedule("far", "v", at(10*24*3600)),
		schedule("twice", "v", at(3600), "scheduler-epoch", at(-3600)),
		schedule("deleted", "v", at(3600)), &kgo.Record{Topic: names.schedules, Key: []byte("deleted")},
	)
	emissions.WaitFor(5, time.Minute)
	emissions.Quiet(quiet)
	fired := map[string]bool{}
	for _, r := range emissions.Records() {
		id, _ := strings.CutPrefix(string(r.Key), "k-")
		fired[id] = true
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	rec := recording{Stopped: time.Now().Unix(), Fired: slices.Sorted(maps.Keys(fired))}
	if rec.Stopped >= soon+45 {
		t.Fatalf("the scheduler took too long to exit:\n%s", log.String())
	}
	written := kafkatest.Collect(t, c, names.schedules)
	written.WaitFor(17, patience)
	written.Quiet(quiet)
	for _, r := range written.Records() {
		one := recorded{Partition: r.Partition, Timestamp: r.Timestamp.UnixMilli(), Key: string(r.Key)}
		if r.Value != nil {
			one.Value = new(string(r.Value))
		}
		for _, h := range r.Headers {
			one.Headers = append(one.Headers,
				[2]string{h.Key, strings.ReplaceAll(names.anonymous(string(h.Value)), history, "history")})
		}
		rec.Records = append(rec.Records, one)
	}
	slices.SortStableFunc(rec.Records, func(a, b recorded) int { return int(a.Timestamp - b.Timestamp) })
	b, err := json.MarshalIndent(rec, "", " ")
	if err == nil {
		err = os.WriteFile(recordingFile(), append(b, '\n'), 0o600)
	}
	if err != nil {
		t.Fatal(fmt.Errorf("keep the recording: %w", err))
	}
}
