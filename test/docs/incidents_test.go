package docs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/kit/child"
	"github.com/waterclock/waterclock/internal/kit/localkafka"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// incidents are those of the runbook: each causes one, does what its section says, and judges what consumers got.
var incidents = map[string]func(*testing.T){
	"Offsets reset by mistake":       offsetsReset,
	"Cluster restored from a backup": clusterRestored,
	"Changelog deleted":              changelogDeleted,
	"Disk lost":                      diskLost,
	"Hot partition":                  hotPartition,
	"Poison flood":                   poisonFlood,
	"Clock jump":                     clockJump,
	"Certificates expired":           certificatesExpired,
	"Wrong version rolled out":       wrongVersion,
	"Broker lost":                    brokerLost,
}

func TestIncidents(t *testing.T) {
	t.Parallel()
	for name, run := range incidents {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
}

// soon is when the timers of an incident are due: most of them while it lasts.
func soon() time.Time { return time.Now().Add(10 * time.Second) }

func offsetsReset(t *testing.T) {
	const n = 20
	s := newScene(t, kafkatest.Shared(t))
	s.serve()
	s.schedule("fired-", n, s.Target, time.Now())
	s.Out.WaitFor(n, patience)
	s.schedule("pending-", n, s.Target, soon())
	s.m.web().Balanced(n)
	s.m.stop()
	s.o.do(step{text: "kafka-consumer-groups.sh --bootstrap-server $BROKERS --group $GROUP --topic $TOPIC " +
		"--reset-offsets --to-earliest --execute"})
	s.o.byHand["wait until a request or a firing was committed on each partition"] = func() {
		s.schedule("later-", n, s.Target, time.Now())
		s.Out.WaitFor(3*n, patience)
		s.record("offsets-reset")
	}
	s.o.follow("Offsets reset by mistake")
	s.exactly(3 * n)
}

func changelogDeleted(t *testing.T) {
	runs.NeedSlow(t)
	const n = 40
	c := kafkatest.Shared(t)
	s := newScene(t, c)
	s.serve()
	s.schedule("id-", n, s.Target, soon().Add(15*time.Second)) // it takes 10 s to be sure that a topic is gone
	s.m.web().Balanced(n)
	kafkatest.DeleteTopics(t, c.Admin(t), topics.Changelog(s.Requests))
	s.notReady("topic is missing")
	s.record("changelog-deleted")
	s.m.stop() // the first thing that people try
	s.m.start()
	s.notReady("holds no checkpoint: the changelog was lost")
	s.o.follow("Changelog deleted")
	s.exactly(n)
}

func diskLost(t *testing.T) {
	const n = 40
	s := newScene(t, kafkatest.Shared(t))
	s.serve()
	s.schedule("id-", n, s.Target, soon())
	s.m.web().Balanced(n)
	s.m.die()
	s.record("instance-lost")
	if err := os.RemoveAll(s.m.data); err != nil {
		t.Fatal(err)
	}
	s.o.byHand["replace the disk, mount it, and give the directory to the user waterclock"] = func() {
		if err := os.Mkdir(s.m.data, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s.o.follow("Disk lost")
	s.exactly(n)
}

// hotPartition has one ID stand for most of what one partition gets.
func hotPartition(t *testing.T) {
	const n, times, hot = 20, 2000, 1
	s := newScene(t, kafkatest.Shared(t))
	s.serve()
	due := soon()
	s.schedule("id-", n, s.Target, due)
	id, i := "", 0
	for ; id == "" || intake.Murmur2Partition([]byte(id), partitions) != hot; i++ {
		id = fmt.Sprint("hot-", i)
	}
	recs := make([]*kgo.Record, times)
	for i := range recs {
		recs[i] = rig.Timer(s.Requests, s.Target, id, due)
	}
	s.Send(recs...)
	s.record("hot-partition")
	s.m.web().Balanced(n + 1)
	s.o.names["PARTITION"] = fmt.Sprint(hot)
	s.o.byHand["set sub-partitions in the configuration to the number of cores, on every machine"] = func() {
		s.m.configure("targets: ['*']", "sub-partitions: 4")
	}
	s.o.follow("Hot partition")
	s.exactly(n + 1)
}

// poisonFlood is a producer whose target nobody has allowed. Others are served meanwhile, and in the end so is it.
func poisonFlood(t *testing.T) {
	const n, bad = 20, 300
	c := kafkatest.Shared(t)
	s := newScene(t, c)
	more := c.CreateTopic(t, 1, nil, s.Requests+"-more")
	out := kafkatest.Collect(t, c, more)
	s.m.configure("targets: [" + s.Target + "]")
	s.serve()
	s.o.names["CLIENT"], s.o.names["REASON"] = "client-of-"+s.Requests, "target-not-allowed"
	s.Client = c.Client(t, kgo.ClientID(s.o.names["CLIENT"]))
	s.schedule("bad-", bad, more, time.Now())
	s.schedule("good-", n, s.Target, time.Now())
	exactly(t, s.Out, n)
	s.record("poison-flood")
	s.o.byHand["have the producer fixed, or allow what it asks for in the configuration, on every machine"] = func() {
		s.m.configure("targets: [" + s.Target + ", " + more + "]")
	}
	s.o.follow("Poison flood")
	exactly(t, out, bad)
	s.exactly(n)
}

// clockJump sets the clock of an instance in the test's process: that of the machine is everybody's.
func clockJump(t *testing.T) {
	const n, hours = 20, 2 * time.Hour
	s := newScene(t, kafkatest.Shared(t))
	var ahead atomic.Int64
	cfg := rig.Config(t, s.Cluster.Seeds(), s.Requests)
	cfg.HTTP = s.m.http
	in, log := rig.ServeLogged(t, cfg,
		node.Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	s.m.logged = func() string { return strings.Join(log.Lines(""), "") }
	in.Ready(partitions, patience)
	s.healthy()
	s.schedule("id-", n, s.Target, soon())
	in.Balanced(n)
	ahead.Store(int64(hours))
	s.notReady("reject the time of this machine, " + time.Now().UTC().Add(hours).Format("2006-01-02T"))
	s.notReady("by the brokers it is " + time.Now().UTC().Format("2006-01-02T"))
	s.record("clock-jump")
	s.o.byHand[`set the clock right, for example with "chronyc makestep", and see that NTP runs`] = func() {
		ahead.Store(0)
	}
	s.o.follow("Clock jump")
	s.exactly(n)
}

func certificatesExpired(t *testing.T) {
	const n, name = 20, "runbook"
	security, opts := rig.Secured(t, nil)
	c := kafkatest.Start(t, 1, append(opts, kafkatest.WithProperty("super.users", "User:ANONYMOUS;User:CN="+name))...)
	s := newScene(t, c)
	cert, key := security.Certificate(t, name, time.Now().Add(time.Hour))
	s.m.brokers = c.Listener(rig.ListenerMutual)
	s.m.configure("targets: ['*']", "tls: true", "tls-ca: "+security.CA, "tls-cert: "+cert, "tls-key: "+key)
	s.serve()
	s.schedule("id-", n, s.Target, soon())
	s.m.web().Balanced(n)
	s.m.stop()
	security.Certificate(t, name, time.Now().Add(-time.Minute))
	s.m.start()
	s.notReady("replace it")
	s.record("certificates-expired")
	s.o.names["CERT"], s.o.names["BROKERS"] = cert, s.m.brokers[0]
	s.o.byHand["put the new certificate and its key in place"] = func() {
		security.Certificate(t, name, time.Now().Add(time.Hour))
	}
	s.o.follow("Certificates expired")
	s.exactly(n)
}

// clusterRestored undoes what happened after a copy: a firing, a cancel, and requests.
func clusterRestored(t *testing.T) {
	runs.NeedSlow(t)
	const n = 20
	c := kafkatest.Start(t, 1)
	s := newScene(t, c)
	s.serve()
	day := time.Now().Add(24 * time.Hour)
	for _, prefix := range []string{"kept-", "fired-", "cancelled-"} {
		s.schedule(prefix, n, s.Target, day)
	}
	s.m.web().Balanced(3 * n)
	s.m.stop()
	copied := t.TempDir()
	restart := func(do func(data string) error) {
		t.Helper()
		b := c.Brokers[0]
		if err := b.End(child.Kill); err != nil {
			t.Fatal(err)
		}
		if err := do(filepath.Join(b.Dir(), "data")); err != nil {
			t.Fatal(err)
		}
		if err := b.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	restart(func(data string) error { return os.CopyFS(copied, os.DirFS(data)) })
	each := func(prefix string, header ...string) {
		t.Helper()
		for i := range n {
			r := s.Request(fmt.Sprint(prefix, i), "", header...)
			r.Value = nil
			s.Send(r)
		}
	}
	trigger := []string{"timer-trigger", "true"}
	s.serve()
	each("fired-", trigger...)
	each("cancelled-")
	s.schedule("lost-", n, s.Target, day)
	s.m.web().Balanced(2 * n)

	s.o.byHand["restore all brokers, and start them"] = func() {
		restart(func(data string) error {
			if err := os.RemoveAll(data); err != nil {
				return err
			}
			return os.CopyFS(data, os.DirFS(copied))
		})
	}
	s.o.follow("Cluster restored from a backup")
	s.m.web().Balanced(3 * n)
	s.Client = c.Client(t) // the former one's producer ID is not that of the cluster any more
	s.Out = kafkatest.Collect(t, c, s.Target)
	for _, prefix := range []string{"kept-", "fired-", "cancelled-", "lost-"} {
		each(prefix, trigger...)
	}
	s.exactly(3 * n)
}

// wrongVersion puts this version where a later one has written.
func wrongVersion(t *testing.T) {
	runs.NeedSlow(t)
	const n = 20
	s := newScene(t, kafkatest.Shared(t))
	right, wrong := laterVersion(t), s.m.binary
	s.m.binary = right
	s.serve()
	s.schedule("fired-", n, s.Target, time.Now())
	s.Out.WaitFor(n, patience)
	s.schedule("pending-", n, s.Target, soon())
	s.m.web().Balanced(n)
	s.m.stop()
	s.m.binary = wrong
	s.m.start()
	s.notReady("written by a newer version of waterclock")
	until(t, "it has left the group",
		func() bool { return s.m.web().Metric("waterclock_partitions") == 0 })
	s.record("wrong-version")
	s.o.byHand["install the version that wrote it"] = func() { s.m.binary = right }
	s.o.follow("Wrong version rolled out")
	s.exactly(2 * n)
}

// laterVersion builds a binary that writes checkpoints in a format that this version does not know.
func laterVersion(t *testing.T) string {
	t.Helper()
	source, err := filepath.Abs(filepath.Join(root, "internal", "kafka", "wire", "checkpoint.go"))
	if err != nil {
		t.Fatal(err)
	}
	set, code := token.NewFileSet(), new(bytes.Buffer)
	file, err := parser.ParseFile(set, source, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if c, ok := n.(*ast.ValueSpec); ok && c.Names[0].Name == "checkpointFormat" {
			c.Values[0] = &ast.BinaryExpr{X: c.Values[0], Op: token.ADD, Y: ast.NewIdent("1")}
		}
		return true
	})
	if err := format.Node(code, set, file); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	later, overlay, binary := filepath.Join(dir, "checkpoint.go"), filepath.Join(dir, "overlay.json"),
		filepath.Join(dir, "waterclock")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {source: later}})
	if err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{later: code.Bytes(), overlay: replace} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "build", "-overlay", overlay, "-o", binary, "./cmd/waterclock")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build a later version: %v: %s", err, out)
	}
	return binary
}

// brokerLost kills one of three brokers; it comes back without the logs of any topic.
func brokerLost(t *testing.T) {
	runs.NeedSlow(t)
	const n, lost = 60, 0
	c := kafkatest.Three(t)
	s := newScene(t, c)
	s.serve()
	s.schedule("id-", n, s.Target, soon())
	s.m.web().Balanced(n)
	c.Kill(lost)
	s.o.do(step{text: "journalctl -u waterclock -o cat", shows: []string{"using the others"}})
	s.record("broker-lost")
	s.o.byHand["start the broker again, with an empty disk if its own is lost"] = func() {
		empty(t, c.Brokers[lost])
		c.Restart(lost)
	}
	s.o.follow("Broker lost")
	s.exactly(n)
}

// empty deletes the logs of all topics of a broker that does not run. The log of the cluster's own data stays, and what
// says which broker it is.
func empty(t *testing.T, b *localkafka.Broker) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(b.Dir(), "data", "*-[0-9]*"))
	if err != nil || len(logs) < 2 {
		t.Fatalf("the broker has the logs %v: %v", logs, err)
	}
	for _, log := range logs {
		if strings.HasPrefix(filepath.Base(log), "__cluster_metadata") {
			continue
		}
		if err := os.RemoveAll(log); err != nil {
			t.Fatal(err)
		}
	}
}
