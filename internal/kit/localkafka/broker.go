package localkafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/waterclock/waterclock/internal/kit/child"
)

const (
	startTimeout = 90 * time.Second // for one broker, on a busy machine
	stopTimeout  = 60 * time.Second // for a controlled shutdown
	pollInterval = 20 * time.Millisecond
	maxLogShown  = 16 << 10 // bytes of one broker's log
)

// startedLine is logged by a broker once it serves clients.
var startedLine = []byte("Kafka Server started")

// infoLines matches the lines that a healthy broker logs.
var infoLines = regexp.MustCompile(`(?m)^\[[^]]*\] INFO .*\n?`)

var errRunning = errors.New("is running")

// Broker is one Kafka process and its directory. mu guards life; it is not held while a process starts or ends.
type Broker struct {
	id      int
	addr    string            // host:port that clients use
	further map[string]string // host:port by name of other listeners
	dir     string
	tools   Tools

	mu   sync.Mutex
	life *life // nil before the first start
}

// life is one run of a broker's process.
type life struct {
	*child.Process
	logFrom int64 // size of the log when it began
}

// ID returns the broker's node ID.
func (b *Broker) ID() int { return b.id }

// Dir returns the broker's directory.
func (b *Broker) Dir() string { return b.dir }

func (b *Broker) logPath() string   { return filepath.Join(b.dir, "broker.log") }
func (b *Broker) dataPath() string  { return filepath.Join(b.dir, "data") }
func (b *Broker) propsPath() string { return filepath.Join(b.dir, "server.properties") }

// tempPath returns the directory into which the broker unpacks its native libraries. Most brokers are killed and
// leave them behind; here they are deleted with the broker's directory.
func (b *Broker) tempPath() string { return filepath.Join(b.dir, "tmp") }

// quickStart are flags that favour a quick start over throughput.
func quickStart() []string { return []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"} }

// java returns a Java command with the broker's class path, in the broker's directory.
func (b *Broker) java(ctx context.Context, args ...string) *exec.Cmd {
	flags := []string{
		"-Xms256m", "-Xmx1g",
		"-Djava.io.tmpdir=" + b.tempPath(),
		"-Dlog4j2.configurationFile=" + filepath.Join(b.dir, "log4j2.properties"),
		"-cp", filepath.Join(b.tools.Libs, "*"),
	}
	cmd := exec.CommandContext(ctx, b.tools.java, slices.Concat(quickStart(), flags, b.tools.flags, args)...)
	cmd.Dir = b.dir
	return cmd
}

// prepare writes the broker's files and formats its storage.
func (b *Broker) prepare(ctx context.Context, props map[string]string, clusterID string) error {
	if err := os.MkdirAll(b.tempPath(), 0o755); err != nil {
		return fmt.Errorf("make the directory of broker %d: %w", b.id, err)
	}
	files := map[string][]byte{b.propsPath(): formatProperties(props),
		filepath.Join(b.dir, "log4j2.properties"): log4j2Properties}
	for path, data := range files {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			return fmt.Errorf("configure broker %d: %w", b.id, err)
		}
	}
	if err := b.format(ctx, clusterID); err != nil {
		return fmt.Errorf("format the storage of broker %d: %w", b.id, err)
	}
	return nil
}

// Start starts the process and returns when it serves clients.
func (b *Broker) Start(ctx context.Context) error {
	l, err := b.launch()
	if err != nil {
		return fmt.Errorf("start broker %d: %w", b.id, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := b.awaitStarted(ctx, l); err != nil {
		return fmt.Errorf("broker %d: %w\n%s", b.id, err, b.Log(l.logFrom, true))
	}
	return nil
}

func (b *Broker) launch() (*life, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.life.alive() {
		return nil, errRunning
	}
	log, err := os.OpenFile(b.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the process has its own handle
	l := &life{logFrom: b.LogSize()}
	cmd := b.java(context.Background(), "kafka.Kafka", b.propsPath())
	cmd.Stdout, cmd.Stderr = log, log
	if l.Process, err = child.Start(cmd); err != nil {
		return nil, err
	}
	b.life = l
	return l, nil
}

func (l *life) alive() bool { return l != nil && l.Alive() }

// awaitStarted watches the log, since a port that accepts is not yet a broker.
func (b *Broker) awaitStarted(ctx context.Context, l *life) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		log, err := b.logged(l.logFrom)
		if err == nil && bytes.Contains(log, startedLine) {
			return nil
		}
		select {
		case <-l.Exited():
			return errors.New("process ended during its start")
		case <-ctx.Done():
			return fmt.Errorf("wait for the start: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// Running reports whether the broker's process exists, paused or not.
func (b *Broker) Running() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.life.alive()
}

// Pid returns the ID of the broker's process, 0 if it does not run.
func (b *Broker) Pid() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.life.alive() {
		return 0
	}
	return b.life.Pid()
}

// disturb calls do with the broker's process. It fails if the process has ended.
func (b *Broker) disturb(do func(*child.Process) error) error {
	b.mu.Lock()
	l := b.life
	b.mu.Unlock()
	if !l.alive() {
		return fmt.Errorf("broker %d is not running", b.id)
	}
	if err := do(l.Process); err != nil {
		return fmt.Errorf("signal broker %d: %w", b.id, err)
	}
	return nil
}

// Signal sends sig to a running broker. It fails if the broker has ended.
func (b *Broker) Signal(sig syscall.Signal) error {
	return b.disturb(func(p *child.Process) error { return p.Signal(sig) })
}

// Pause stops a running broker and waits until all its threads have stopped.
func (b *Broker) Pause() error {
	return b.disturb((*child.Process).Pause)
}

// End signals a running broker and waits until it is gone.
func (b *Broker) End(sig syscall.Signal) error {
	return b.disturb(func(p *child.Process) error { return p.End(sig, stopTimeout) })
}

// LogSize returns how much the broker has logged so far, in bytes.
func (b *Broker) LogSize() int64 {
	info, err := os.Stat(b.logPath())
	if err != nil {
		return 0
	}
	return info.Size()
}

// Log returns the broker's log from that position on, at most its last maxLogShown bytes. Without info, lines of
// level INFO are left out.
func (b *Broker) Log(from int64, info bool) []byte {
	data, err := b.logged(from)
	if err != nil {
		return []byte(err.Error())
	}
	if !info {
		data = infoLines.ReplaceAll(data, nil)
	}
	return data[max(0, len(data)-maxLogShown):]
}

// logged returns the broker's log from that position on.
func (b *Broker) logged(from int64) ([]byte, error) {
	log, err := os.ReadFile(b.logPath())
	return log[min(from, int64(len(log))):], err
}
