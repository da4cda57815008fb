package kafkatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = 90 * time.Second // of one broker, on a busy machine
	stopTimeout  = 60 * time.Second // of a controlled shutdown
	pollInterval = 20 * time.Millisecond
	maxLogShown  = 16 << 10 // bytes of one broker's log
)

// startedLine is what a broker logs once it serves clients.
var startedLine = []byte("Kafka Server started")

// infoLines are what a broker logs when all is well.
var infoLines = regexp.MustCompile(`(?m)^\[[^]]*\] INFO .*\n?`)

var errRunning = errors.New("is running")

// broker is one Kafka process and its folder. mu guards run; it is not held
// while a process starts or ends.
type broker struct {
	id      int
	addr    string            // host:port that clients use
	further map[string]string // host:port by name of other listeners
	dir     string
	tools   toolchain

	mu  sync.Mutex
	run *run // nil before the first start
}

// run is one life of a broker's process.
type run struct {
	cmd     *exec.Cmd
	exited  chan struct{} // closed when the process is gone
	logFrom int64         // size of the log when this life began
}

func (b *broker) logPath() string   { return filepath.Join(b.dir, "broker.log") }
func (b *broker) propsPath() string { return filepath.Join(b.dir, "server.properties") }

// tempPath is where the broker unpacks its native libraries. A broker that is
// killed, as most are, leaves them behind; here they go with its folder.
func (b *broker) tempPath() string { return filepath.Join(b.dir, "tmp") }

// java is a Java command with the broker's class path, in the broker's folder.
// The flags favour a quick start over throughput.
func (b *broker) java(ctx context.Context, args ...string) *exec.Cmd {
	flags := []string{
		"-Xms256m", "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-Djava.io.tmpdir=" + b.tempPath(),
		"-Dlog4j2.configurationFile=" + filepath.Join(b.dir, "log4j2.properties"),
		"-cp", filepath.Join(b.tools.libs, "*"),
	}
	cmd := exec.CommandContext(ctx, b.tools.java, slices.Concat(flags, b.tools.flags, args)...)
	cmd.Dir = b.dir
	return cmd
}

// prepare writes the broker's files and formats its storage.
func (b *broker) prepare(ctx context.Context, props map[string]string, formatArgs []string) error {
	if err := os.MkdirAll(b.tempPath(), 0o755); err != nil {
		return fmt.Errorf("make the folder of broker %d: %w", b.id, err)
	}
	files := map[string][]byte{b.propsPath(): formatProperties(props), filepath.Join(b.dir, "log4j2.properties"): log4j2Properties}
	for path, data := range files {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return fmt.Errorf("configure broker %d: %w", b.id, err)
		}
	}
	args := append([]string{"kafka.tools.StorageTool", "format", "--ignore-formatted", "-c", b.propsPath()}, formatArgs...)
	cmd := b.java(ctx, args...)
	ownGroup(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("format the storage of broker %d: %w\n%s", b.id, err, out)
	}
	return nil
}

// start starts the process and returns when it serves clients.
func (b *broker) start(ctx context.Context) error {
	r, err := b.launch()
	if err != nil {
		return fmt.Errorf("start broker %d: %w", b.id, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := b.awaitStarted(ctx, r); err != nil {
		return fmt.Errorf("broker %d: %w\n%s", b.id, err, b.log(r.logFrom, true))
	}
	return nil
}

func (b *broker) launch() (*run, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run.alive() {
		return nil, errRunning
	}
	log, err := os.OpenFile(b.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the process has its own handle
	r := &run{exited: make(chan struct{}), logFrom: b.logSize()}
	r.cmd = b.java(context.Background(), "kafka.Kafka", b.propsPath())
	r.cmd.Stdout, r.cmd.Stderr = log, log
	ownGroup(r.cmd)
	started := make(chan error, 1)
	go r.supervise(started)
	if err := <-started; err != nil {
		return nil, err
	}
	b.run = r
	return r, nil
}

// supervise starts the process, waits for its end and tells both. It stays on
// one thread from start to end, because the kernel's signal at the parent's
// death means the thread that started the process, not the test process.
func (r *run) supervise(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(r.exited)
	err := r.cmd.Start()
	started <- err
	if err == nil {
		_ = r.cmd.Wait() // brokers are killed as a rule: the status says nothing
	}
}

// awaitStarted watches the log, since a port that accepts is not yet a broker.
func (b *broker) awaitStarted(ctx context.Context, r *run) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		log, err := readFrom(b.logPath(), r.logFrom)
		if err == nil && bytes.Contains(log, startedLine) {
			return nil
		}
		select {
		case <-r.exited:
			return errors.New("ended while starting")
		case <-ctx.Done():
			return fmt.Errorf("wait for the start: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

func (r *run) alive() bool {
	if r == nil {
		return false
	}
	select {
	case <-r.exited:
		return false
	default:
		return true
	}
}

func (b *broker) running() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.run.alive()
}

// signal sends sig to a running broker; to one that ended it is an error.
func (b *broker) signal(sig syscall.Signal) (*run, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.run.alive() {
		return nil, fmt.Errorf("broker %d is not running", b.id)
	}
	if err := signalGroup(b.run.cmd, sig); err != nil {
		return nil, fmt.Errorf("signal broker %d: %w", b.id, err)
	}
	return b.run, nil
}

// end signals a running broker and waits until it is gone.
func (b *broker) end(sig syscall.Signal) error {
	r, err := b.signal(sig)
	if err != nil {
		return err
	}
	limit := time.NewTimer(stopTimeout)
	defer limit.Stop()
	select {
	case <-r.exited:
		return nil
	case <-limit.C:
		return fmt.Errorf("broker %d did not end within %v", b.id, stopTimeout)
	}
}

// pause stops a running broker and waits until it stands still.
func (b *broker) pause() error {
	r, err := b.signal(sigPause)
	if err != nil {
		return err
	}
	if err := awaitPaused(r.cmd); err != nil {
		return fmt.Errorf("pause broker %d: %w", b.id, err)
	}
	return nil
}

func (b *broker) logSize() int64 {
	info, err := os.Stat(b.logPath())
	if err != nil {
		return 0
	}
	return info.Size()
}

// log returns what the broker logged from that position on, at most its last
// maxLogShown bytes; without info, that is without the lines of that level.
func (b *broker) log(from int64, info bool) []byte {
	data, err := readFrom(b.logPath(), from)
	if err != nil {
		return []byte(err.Error())
	}
	if !info {
		data = infoLines.ReplaceAll(data, nil)
	}
	return data[max(0, len(data)-maxLogShown):]
}
