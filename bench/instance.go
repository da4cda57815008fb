package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/kit/child"
	"github.com/waterclock/waterclock/internal/kit/localkafka"
	"github.com/waterclock/waterclock/internal/node/config"
)

const (
	// termTimeout bounds a clean stop.
	termTimeout = time.Minute
	// readyPoll is the interval between two requests for /readyz.
	readyPoll = 5 * time.Millisecond
	// getTimeout bounds one response.
	getTimeout = 2 * time.Second
)

// instance is a running instance of the service.
type instance struct {
	*process
	http  string
	pprof string // address of its profiler; empty: none
	api   string // address of its HTTP API; empty: none
	dir   string // its data directory
}

// serve starts the run's instance, if it has one, and waits until it is ready.
func (r *run) serve(ctx context.Context) (err error) {
	if r.serving != nil || !r.Local {
		return nil
	}
	partitions := r.partitions
	if r.delayed.Topic != "" {
		partitions += r.Partitions
	}
	if r.serving, err = r.launch(r.settings()); err != nil {
		return err
	}
	return r.serving.ready(ctx, partitions)
}

// unserve stops the run's instance, for the next one.
func (r *run) unserve() error {
	err := r.serving.stop()
	r.serving = nil
	return err
}

// settings returns the settings of the run's instance.
func (r *run) settings() *config.Config {
	cfg := r.cfg
	cfg.Requests, cfg.Targets, cfg.Group = []string{r.requests}, append(r.more, r.target), r.group
	if r.delayed.Topic != "" {
		cfg.Delay = []config.DelayTopic{r.delayed}
	}
	cfg.TargetRates = r.rates
	cfg.DataDir = filepath.Join(r.Dir, "data")
	return &cfg
}

// launch starts an instance as a process.
func (r *run) launch(cfg *config.Config) (i *instance, err error) {
	i = &instance{dir: cfg.DataDir}
	args := []string{
		"--brokers", strings.Join(cfg.Brokers, ","), "--requests", strings.Join(cfg.Requests, ","), "--targets",
		strings.Join(cfg.Targets, ","),
		"--group", cfg.Group, "--data-dir", cfg.DataDir, "--on-stop", string(cfg.OnStop),
		"--firing-interval", cfg.FiringInterval.String(), "--sub-partitions", strconv.Itoa(cfg.SubPartitions),
		"--standbys", strconv.Itoa(cfg.Standbys),
	}
	for _, d := range cfg.Delay {
		args = append(args, "--delay", d.String())
	}
	for _, t := range cfg.TargetRates {
		args = append(args, "--target-rates", t.String())
	}
	if r.Events {
		args = append(args, "--events")
	}
	if cfg.InstanceID != "" {
		args = append(args, "--instance-id", cfg.InstanceID)
	}
	for flag, a := range map[string]struct {
		wanted bool
		addr   *string
	}{"--http": {true, &i.http}, "--api": {r.api, &i.api}, "--pprof": {r.Profiles != "", &i.pprof}} {
		if !a.wanted {
			continue
		}
		free, err := localkafka.FreeAddrs(1)
		if err != nil {
			return nil, err
		}
		*a.addr = free[0]
		args = append(args, flag, *a.addr)
	}
	cmd := exec.Command(r.Serve[0], append(r.Serve[1:len(r.Serve):len(r.Serve)], args...)...)
	if i.process, err = startProcess(cmd, filepath.Join(r.Logs, "service.log")); err != nil {
		return nil, err
	}
	return i, nil
}

// pid returns 0 without an instance, or if its process is not known.
func (i *instance) pid() int {
	if i == nil {
		return 0
	}
	return i.Pid()
}

// ready waits until the instance serves all partitions.
func (i *instance) ready(ctx context.Context, partitions int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // until the process has ended
		<-i.Exited()
		cancel()
	}()
	err := awaitReady(ctx, i.http, partitions)
	if err != nil && !i.Alive() {
		return fmt.Errorf("instance ended before it was ready: %w\n%s", errors.Join(i.Wait()), i.tail())
	}
	return err
}

// awaitReady waits until an instance is ready and owns all partitions.
func awaitReady(ctx context.Context, addr string, partitions int) error {
	var live []int
	return poll(ctx, readyPoll, func() (ready bool, _ error) {
		ready, live, _ = askReady(ctx, addr)
		return ready && len(live) == partitions, nil
	}, func() error {
		return fmt.Errorf("wait for %d live partitions, %d are: %w", partitions, len(live), ctx.Err())
	})
}

// askReady queries /readyz once. It returns the live partitions of all topics. Without a response the instance is not
// ready.
func askReady(ctx context.Context, addr string) (ready bool, live []int, err error) {
	status, b, err := get(ctx, "http://"+addr+"/readyz", getTimeout)
	var body struct {
		Detail struct {
			Topics map[string]map[int]struct{ State string } // by topic and partition
		}
	}
	if err = cmp.Or(err, json.Unmarshal(b, &body)); err != nil {
		return false, nil, err
	}
	for _, ps := range body.Detail.Topics {
		for n, p := range ps {
			if p.State == "live" {
				live = append(live, n)
			}
		}
	}
	return status == http.StatusOK, live, nil
}

func get(ctx context.Context, url string, timeout time.Duration) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := (&http.Client{Timeout: timeout}).Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// stop ends the instance with SIGTERM, and waits.
func (i *instance) stop() error {
	if !i.Alive() {
		return fmt.Errorf("instance ended by itself: %w\n%s", errors.Join(i.Wait()), i.tail())
	}
	if err := i.End(child.Term, termTimeout); err != nil {
		i.kill()
		return fmt.Errorf("stop the instance: %w", err)
	}
	if err := i.Wait(); err != nil {
		return fmt.Errorf("instance ended: %w\n%s", err, i.tail())
	}
	return nil
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

// samples returns the samples of one metric by their labels as text, or an error if there are none. It parses nothing
// else of the response, because its own processor time is measured, too.
func (i *instance) samples(ctx context.Context, name string) (map[string]float64, error) {
	_, b, err := get(ctx, "http://"+i.http+"/metrics", getTimeout)
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

// pendingTimeout limits how long it takes until the last accepted request is applied.
const pendingTimeout = 10 * time.Second

// allPending waits, up to limit, until exactly that many timers are pending.
func (i *instance) allPending(ctx context.Context, p *Phase, timers int, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := poll(ctx, barEvery, func() (bool, error) {
		n, err := i.metric(ctx, "waterclock_pending_timers")
		if err != nil {
			return false, err
		}
		p.Exact.Scheduled, p.Exact.Lost, p.Exact.Altered = timers, max(0, timers-int(n)), max(0, int(n)-timers)
		return int(n) == timers, nil
	}, func() error { return nil })
	return errors.Join(err, p.Exact.Err(p.Name))
}

// diskUse returns the sum of the sizes of all files in a directory.
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
