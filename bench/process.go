package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/waterclock/waterclock/internal/config"
)

const (
	// termTimeout bounds a clean stop.
	termTimeout = time.Minute
	// logTail is how much of a child's log an error shows, in bytes.
	logTail = 4 << 10
)

// child is an instance in a process of its own, so that it can be killed and
// its memory read.
type child struct {
	cmd  *exec.Cmd
	http string
	log  string // file
	done chan error
}

// launch starts command with the settings of cfg as flags.
func launch(command []string, cfg *config.Config, log string) (*child, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	c := &child{http: l.Addr().String(), log: log, done: make(chan error, 1)}
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the instance's log: %w", err)
	}
	defer out.Close()
	args := append(command[1:len(command):len(command)],
		"--brokers", strings.Join(cfg.Brokers, ","), "--requests", strings.Join(cfg.Requests, ","), "--targets", strings.Join(cfg.Targets, ","),
		"--group", cfg.Group, "--instance-id", cfg.InstanceID, "--on-stop", string(cfg.OnStop), "--data-dir", cfg.DataDir, "--http", c.http)
	c.cmd = exec.Command(command[0], args...)
	c.cmd.Stdout, c.cmd.Stderr = out, out
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start an instance: %w", err)
	}
	go func() { c.done <- c.cmd.Wait() }()
	return c, nil
}

// ready waits until the instance serves all partitions.
func (c *child) ready(ctx context.Context, partitions int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ready := make(chan error, 1)
	go func() { ready <- awaitReady(ctx, c.http, partitions) }()
	select {
	case err := <-ready:
		return err
	case err := <-c.done:
		c.done <- err
		cancel(nil)
		<-ready //nolint:errcheck // it says that it was cancelled
		return fmt.Errorf("instance ended before it was ready: %w\n%s", err, tailOf(c.log))
	}
}

// kill ends the process at once.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // gone already is as good
	c.done <- <-c.done
}

// term stops it in order.
func (c *child) term() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the instance: %w", err)
	}
	select {
	case err := <-c.done:
		c.done <- err
		if err != nil {
			return fmt.Errorf("instance ended: %w\n%s", err, tailOf(c.log))
		}
		return nil
	case <-time.After(termTimeout):
		return fmt.Errorf("instance still runs %s after SIGTERM", termTimeout)
	}
}

func tailOf(file string) []byte {
	b, _ := os.ReadFile(file) // there is no better error to show
	return b[max(0, len(b)-logTail):]
}

// memory reads resident size and its peak, in bytes; 0 where the system does
// not tell (it is Linux that does).
func (c *child) memory() (rss, peak int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		return 0, 0
	}
	return ParseStatus(b)
}

// ParseStatus reads VmRSS and VmHWM of a /proc/PID/status, in bytes; 0 for what it
// lacks.
func ParseStatus(b []byte) (rss, peak int64) {
	lines := bufio.NewScanner(bytes.NewReader(b))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) != 3 || f[2] != "kB" {
			continue
		}
		n, _ := strconv.ParseInt(f[1], 10, 64) // the kernel writes numbers
		switch f[0] {
		case "VmRSS:":
			rss = n << 10
		case "VmHWM:":
			peak = n << 10
		}
	}
	return rss, peak
}

// metric sums the samples of a counter or gauge without parsing more than that.
func (c *child) metric(ctx context.Context, name string) (int64, error) {
	resp, err := get(ctx, c.http, "/metrics")
	if err != nil {
		return 0, fmt.Errorf("read /metrics: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("read /metrics: %w", err)
	}
	sum := 0.0
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("read metric %s: %w", name, err)
		}
		sum += v
	}
	return int64(sum), nil
}

// diskUse is the sum of the sizes of all files in a folder.
func diskUse(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("measure folder %s: %w", dir, err)
	}
	return sum, nil
}
