package kafkatest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"go.uber.org/goleak"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kit/child"
	"github.com/waterclock/waterclock/internal/kit/localkafka"
)

const (
	envCount   = "WATERCLOCK_KAFKA_COUNT"
	envRequire = "WATERCLOCK_REQUIRE_KAFKA"

	// lockReserve is how long before the end of go test's time limit a test that waits for its turn gives up, so that
	// it can say why.
	lockReserve = 10 * time.Second

	// parallel is how many parallel tests run together, whatever the number of cores: tests mostly wait, for due timers
	// or for sessions to end.
	parallel = 10
)

// processState is the state shared by the tests of one process.
type processState struct {
	lock   *machineLock
	tools  func() (localkafka.Tools, error)
	main   bool // Main runs the tests; it is set before they begin
	shared kept
	three  kept // its lock is held by the test that has it

	mu      sync.Mutex // guards the fields below
	counted map[string]bool
	ends    []func()
}

// kept is a cluster that outlives the test that starts it.
type kept struct {
	mu      sync.Mutex          // guards the fields below
	cluster *localkafka.Cluster // nil before the first test, and after one that has damaged it
	dir     string
	err     error // why it did not start
}

// running returns the cluster. If there is none it starts one of n brokers. mu is held.
func (k *kept) running(t testing.TB, n int) *localkafka.Cluster {
	t.Helper()
	tools := process.require(t)
	if !process.main {
		t.Fatal(`kafkatest: Shared and Three need "func TestMain(m *testing.M) { kafkatest.Main(m) }" in the package`)
	}
	if k.cluster == nil && k.err == nil {
		process.lockMachine(t)
		if k.err = k.start(tools, n); k.err != nil {
			process.lock.release()
		}
	}
	if k.err != nil {
		t.Fatalf("kafkatest: start a cluster of %d: %v", n, k.err)
	}
	return k.cluster
}

func (k *kept) start(tools localkafka.Tools, n int) (err error) {
	if k.dir, err = os.MkdirTemp("", "waterclock-kafka-"); err != nil {
		return err
	}
	cluster, err := localkafka.Start(context.Background(), tools, k.dir, n)
	if err != nil {
		_ = os.RemoveAll(k.dir)
		return err
	}
	k.cluster = cluster
	return nil
}

// discard ends the cluster; mu is held.
func (k *kept) discard() {
	if k.cluster == nil {
		return
	}
	k.cluster.Close()
	k.cluster = nil
	_ = os.RemoveAll(k.dir)
	process.lock.release()
}

func (k *kept) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.discard()
}

// process is a variable because there is exactly one process.
var process = &processState{
	lock:    newMachineLock(os.TempDir(), runtime.NumCPU()),
	tools:   sync.OnceValues(func() (localkafka.Tools, error) { return localkafka.Find(context.Background()) }),
	counted: map[string]bool{},
}

// Main is the body of TestMain for packages that use Shared. It runs the tests, at most ten parallel ones together,
// ends the shared clusters, prints how many tests got a real broker, and exits. m is the *testing.M, or one that checks
// more, such as LeakFree.
func Main(m interface{ Run() int }) {
	if err := flag.Set("test.parallel", strconv.Itoa(parallel)); err != nil {
		panic(err)
	}
	process.main = true
	code := m.Run()
	process.shared.end()
	process.three.end()
	for _, end := range process.ends {
		end()
	}
	fmt.Printf("kafkatest: real broker tests run: %d\n", process.counts())
	os.Exit(code)
}

// AtEnd makes Main call do when all tests are over. It is for things that outlive the test that made them.
func AtEnd(do func()) {
	process.mu.Lock()
	defer process.mu.Unlock()
	process.ends = append(process.ends, do)
}

// Shared returns the single-broker cluster that all tests of the package share: started at its first use, ended by
// Main. Tests use topics, groups and transactional IDs of their own, see Topic.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	process.shared.mu.Lock()
	defer process.shared.mu.Unlock()
	c := &Cluster{Cluster: process.shared.running(t, 1)}
	c.showLogs(t, c.logSizes())
	process.count(t)
	return c
}

// MainAlone is Main for a package whose tests use the whole machine: no other test process has brokers at the time.
func MainAlone(m interface{ Run() int }) {
	process.lock.setAlone(true)
	Main(m)
}

// Alone makes the clusters that t starts the only ones on this machine, for a test that measures. It must be called
// before Start, and while the process has no cluster: not beside parallel tests and not after one that uses Shared.
func Alone(t testing.TB) {
	t.Helper()
	if !process.lock.setAlone(true) {
		t.Fatal("kafkatest: this process has a cluster already: call Alone before")
	}
	t.Cleanup(func() {
		if !process.lock.setAlone(false) {
			t.Error("kafkatest: a cluster has outlived the test that was alone")
		}
	})
}

// LeakFree is an M whose tests must leave no goroutine behind. It checks when all are done, because it cannot while
// others run in parallel.
type LeakFree struct{ *testing.M }

// Run runs the tests and returns the exit code.
func (l LeakFree) Run() int {
	code := l.M.Run()
	if err := goleak.Find(IgnoreBrokers()...); err != nil {
		fmt.Printf("kafkatest: after all tests: %v\n", err)
		return max(code, 1)
	}
	return code
}

// IgnoreBrokers makes goleak ignore the goroutines that watch over running brokers, and over the machine's lock, for
// tests that look for leaks while the shared cluster is up. It also ignores goroutines that fake brokers leave behind.
func IgnoreBrokers() []goleak.Option {
	const module = "github.com/waterclock/waterclock/internal/"
	return []goleak.Option{
		goleak.IgnoreAnyFunction(module + "kit/child.(*Process).supervise"),
		goleak.IgnoreAnyFunction(module + "kafkatest.lockOne"),
		// kfake's own: controls that sleep when their cluster is closed wait for each other.
		goleak.IgnoreAnyFunction("github.com/twmb/franz-go/pkg/kfake.(*Cluster).runControl.func1"),
	}
}

// require returns the tools to run Kafka, or ends the test.
func (p *processState) require(t testing.TB) localkafka.Tools {
	t.Helper()
	if testing.Short() {
		t.Skip("real Kafka is not started with -short")
	}
	tools, err := p.tools()
	switch {
	case err == nil:
	case os.Getenv(envRequire) == "1":
		t.Fatalf("real Kafka needs Java %d and Maven: %v (%s=1)", localkafka.MinJava, err, envRequire)
	default:
		t.Skipf("real Kafka needs Java %d and Maven: %v", localkafka.MinJava, err)
	}
	return tools
}

// lockMachine waits for the machine's lock, or ends the test shortly before its own time is over.
func (p *processState) lockMachine(t testing.TB) {
	t.Helper()
	ctx := t.Context()
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if end, ok := d.Deadline(); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, end.Add(-lockReserve))
			defer cancel()
		}
	}
	begin := time.Now()
	must(t, p.lock.acquire(ctx))
	if waited := time.Since(begin); waited > time.Second {
		t.Logf("kafkatest: waited %v for another process's Kafka", waited.Round(time.Second))
	}
}

// count records, once for each test, that it got a real broker.
func (p *processState) count(t testing.TB) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counted[t.Name()] {
		return
	}
	p.counted[t.Name()] = true
	path := os.Getenv(envCount)
	if path == "" {
		return
	}
	if err := appendLine(path, testPackage()+"/"+t.Name()); err != nil {
		t.Errorf("kafkatest: count this test: %v", err)
	}
}

func (p *processState) counts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.counted)
}

// testPackage is the import path of the package under test.
func testPackage() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return strings.TrimSuffix(info.Path, ".test")
}

// appendLine adds one line in one write, so that processes may share the file.
func appendLine(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// inSyncTimeout bounds how long brokers that are back may take to catch up.
const inSyncTimeout = time.Minute

// Three lends the three-broker cluster that the tests of a package share, to one test at a time: others wait. Unlike
// Shared it may be disturbed. At first all brokers are running and all replicas in sync; records of earlier tests are
// still there. It is started at its first use and ended by Main.
func Three(t testing.TB) *Cluster {
	t.Helper()
	k := &process.three
	k.mu.Lock()
	t.Cleanup(k.mu.Unlock)
	c := &Cluster{k.running(t, 3), t}
	t.Cleanup(func() {
		if err := c.fix(); err != nil {
			t.Errorf("kafkatest: after the test: %v", err)
			k.discard()
		}
	})
	c.showLogs(t, c.logSizes())
	c.AwaitInSync(t)
	process.count(t)
	return c
}

// fix makes every broker run, including those that a test has left paused or dead.
func (c *Cluster) fix() error {
	return c.Each(func(b *localkafka.Broker) error {
		if b.Running() {
			return b.Signal(child.Continue)
		}
		return b.Start(context.Background())
	})
}

// AwaitInSync waits until every partition of every topic has a leader and all its replicas in sync, and ends the test
// if that takes too long.
func (c *Cluster) AwaitInSync(t testing.TB) {
	t.Helper()
	adm := c.Admin(t)
	defer adm.Close()
	behind := ""
	if _, came := await.Within(inSyncTimeout, func() bool {
		behind = outOfSync(t.Context(), adm)
		return behind == ""
	}); !came {
		t.Fatalf("kafkatest: not in sync within %v: %s", inSyncTimeout, behind)
	}
}

// outOfSync names a partition that lacks a leader or replicas, "" if there is none.
func outOfSync(ctx context.Context, adm *kadm.Client) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	topics, err := adm.ListTopicsWithInternal(ctx)
	if err != nil {
		return err.Error()
	}
	for name, t := range topics {
		for n, p := range t.Partitions {
			if p.Err != nil || p.Leader < 0 || len(p.ISR) != len(p.Replicas) {
				return fmt.Sprintf("%s/%d: leader %d, in sync %v of %v, %v", name, n, p.Leader, p.ISR,
					p.Replicas, p.Err)
			}
		}
	}
	return ""
}
