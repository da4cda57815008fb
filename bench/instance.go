package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/child"
	"github.com/waterclock/waterclock/internal/config"
)

// termTimeout bounds a clean stop.
const termTimeout = time.Minute

// server serves the request topic of a configuration until ctx ends. It calls
// started, at most once, with the address at which it serves HTTP.
type server func(ctx context.Context, cfg *config.Config, started func(http string)) error

// instance is a running instance of the service: a process, or a stub.
type instance struct {
	*process // nil for a stub
	http     string
	pprof    string       // address of its profiler; empty: none
	api      string       // address of its HTTP API; empty: none
	end      func() error // of a stub
}

// pid is 0 where no process is known.
func (i *instance) pid() int {
	if i == nil || i.process == nil {
		return 0
	}
	return i.Pid()
}

// serve starts the run's instance, if it has one, and waits until it is ready.
func (r *run) serve(ctx context.Context) error {
	switch {
	case r.serving != nil || !r.Local && r.stub == nil:
		return nil
	case r.stub != nil:
		return r.serveStub(ctx)
	}
	cfg := r.settings()
	i, err := r.launch(&cfg)
	if err != nil {
		return err
	}
	r.serving = i
	return i.ready(ctx, r.served())
}

// settings are those of the run's instance.
func (r *run) settings() config.Config {
	cfg := r.cfg
	cfg.Requests, cfg.Targets, cfg.Group = []string{r.requests}, []string{r.target}, r.group
	if r.delayed.Topic != "" {
		cfg.Delay = []config.DelayTopic{r.delayed}
	}
	cfg.DataDir = filepath.Join(r.Dir, "data")
	if r.Events {
		policy := cfg.PolicyOf(r.requests)
		policy.Events = true
		cfg.Tenants = map[string]config.Policy{r.requests: policy}
	}
	return cfg
}

// tenants are the arguments by which an instance has the policies of cfg, of which the
// file alone tells: those of request topics with events.
func (r *run) tenants(cfg *config.Config) (args []string, err error) {
	if len(cfg.Tenants) == 0 {
		return nil, nil
	}
	text := "tenants:\n"
	for topic := range cfg.Tenants {
		text += fmt.Sprintf("  %q: {events: true}\n", topic)
	}
	name := filepath.Join(r.Dir, "waterclock.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write the settings of the instance: %w", err)
	}
	return []string{"--config", name}, nil
}

// served is how many partitions the run's instance serves.
func (r *run) served() int {
	if r.delayed.Topic != "" {
		return r.partitions + r.Partitions
	}
	return r.partitions
}

// launch starts an instance as a process.
func (r *run) launch(cfg *config.Config) (*instance, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	args := []string{
		"--brokers", strings.Join(cfg.Brokers, ","), "--requests", strings.Join(cfg.Requests, ","), "--targets", strings.Join(cfg.Targets, ","),
		"--group", cfg.Group, "--data-dir", cfg.DataDir, "--http", addr, "--on-stop", string(cfg.OnStop),
		"--firing-interval", cfg.FiringInterval.String(), "--sub-partitions", strconv.Itoa(cfg.SubPartitions),
	}
	for _, d := range cfg.Delay {
		args = append(args, "--delay", d.String())
	}
	tenants, err := r.tenants(cfg)
	if err != nil {
		return nil, err
	}
	args = append(args, tenants...)
	if cfg.InstanceID != "" {
		args = append(args, "--instance-id", cfg.InstanceID)
	}
	i := &instance{http: addr}
	if r.api {
		if i.api, err = freeAddr(); err != nil {
			return nil, err
		}
		args = append(args, "--api", i.api)
	}
	if r.Profiles != "" {
		if i.pprof, err = freeAddr(); err != nil {
			return nil, err
		}
		args = append(args, "--pprof", i.pprof)
	}
	cmd := exec.Command(r.Serve[0], append(r.Serve[1:len(r.Serve):len(r.Serve)], args...)...)
	i.process, err = startProcess(cmd, filepath.Join(r.Logs, "service.log"))
	return i, err
}

// freeAddr is a loopback address that nobody listens on now.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = l.Close()
	}
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), nil
}

func (r *run) serveStub(ctx context.Context) error {
	cfg := r.settings()
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	started, done := make(chan string, 1), make(chan error, 1)
	go func() { done <- r.stub(life, &cfg, func(http string) { started <- http }) }()
	r.serving = &instance{http: <-started, end: func() error {
		cancel()
		return <-done
	}}
	return awaitReady(ctx, r.serving.http, r.served())
}

// ready waits until the instance serves all partitions.
func (i *instance) ready(ctx context.Context, partitions int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ready := make(chan error, 1)
	go func() { ready <- awaitReady(ctx, i.http, partitions) }()
	select {
	case err := <-ready:
		return err
	case <-i.Exited():
		cancel(nil)
		<-ready //nolint:errcheck // it says that it was cancelled
		return fmt.Errorf("instance ended before it was ready: %w\n%s", errors.Join(i.Wait()), i.tail())
	}
}

// stop ends the instance in order.
func (i *instance) stop() error {
	if i.process == nil {
		return i.end()
	}
	if !i.Alive() {
		return fmt.Errorf("instance ended by itself: %w\n%s", errors.Join(i.Wait()), i.tail())
	}
	if err := i.Signal(child.Term); err != nil {
		return fmt.Errorf("stop the instance: %w", err)
	}
	select {
	case <-i.Exited():
		if err := i.Wait(); err != nil {
			return fmt.Errorf("instance ended: %w\n%s", err, i.tail())
		}
		return nil
	case <-time.After(termTimeout):
		i.kill()
		return fmt.Errorf("instance still ran %s after SIGTERM", termTimeout)
	}
}

// metric sums the samples of a counter or gauge.
func (i *instance) metric(ctx context.Context, name string) (int64, error) {
	samples, err := i.samples(ctx, name)
	sum := 0.0
	for _, v := range samples {
		sum += v
	}
	return int64(sum), err
}

// samples reads those of one metric, at least one, by their labels as they stand there. It parses no
// more than that.
func (i *instance) samples(ctx context.Context, name string) (map[string]float64, error) {
	resp, err := get(ctx, i.http, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("read /metrics: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read /metrics: %w", err)
	}
	samples := make(map[string]float64)
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		labels, value := rest[:strings.LastIndexByte(rest, ' ')], rest[strings.LastIndexByte(rest, ' ')+1:]
		if samples[labels], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("read metric %s: %w", name, err)
		}
	}
	if len(samples) == 0 {
		return nil, fmt.Errorf("read metric %s: the instance has none", name)
	}
	return samples, nil
}

// diskUse is the sum of the sizes of all files in a directory.
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
		return 0, fmt.Errorf("measure directory %s: %w", dir, err)
	}
	return sum, nil
}
