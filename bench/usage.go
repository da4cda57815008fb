package bench

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

// usage is the processor time used up to a moment. A field is negative if the system does not report it. Linux does.
type usage struct {
	at      time.Time
	own     time.Duration // of the service, or of the bare loop in its place
	broker  time.Duration
	clients time.Duration // of this process, which schedules and receives
	machine time.Duration // of all processes
	steps   int64         // transactions of the instance; negative if unknown
}

// CPU is processor time in µs per timer.
type CPU struct {
	Own     float64 `json:"own_us"`              // the service, or the bare loop in its place
	Broker  float64 `json:"broker_us,omitempty"` // if the run has started it
	Clients float64 `json:"clients_us"`          // the process that schedules, receives and verifies
	// Others is the share of the machine's processor time that went to other processes.
	Others float64 `json:"others"`
}

// own returns 0 if nothing is known.
func (c *CPU) own() float64 {
	if c == nil {
		return 0
	}
	return c.Own
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// cpuTime returns the processor time of a process so far.
func cpuTime(pid int) time.Duration {
	stat, err := ofSystem(func() (procfs.Proc, error) { return procfs.NewProc(pid) }, procfs.Proc.Stat)
	if err != nil {
		return -1
	}
	return seconds(stat.CPUTime())
}

// ofSystem opens a part of /proc and reads something from it.
func ofSystem[P, T any](open func() (P, error), read func(P) (T, error)) (found T, err error) {
	part, err := open()
	if err != nil {
		return found, err
	}
	return read(part)
}

// machineTime returns the processor time of all processes and the kernel so far.
func machineTime() time.Duration {
	stat, err := ofSystem(procfs.NewDefaultFS, procfs.FS.Stat)
	if err != nil {
		return -1
	}
	c := stat.CPUTotal
	return seconds(c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ) // without idle time and waits for a disk
}

// memory returns the resident size of a process and its peak, in bytes; 0 if unknown.
func memory(pid int) (rss, peak int64) {
	status, err := ofSystem(func() (procfs.Proc, error) { return procfs.NewProc(pid) }, procfs.Proc.NewStatus)
	if err != nil {
		return 0, 0
	}
	return int64(status.VmRSS), int64(status.VmHWM)
}

// load returns the machine's load over the last minute; 0 if unknown.
func load() float64 {
	avg, err := ofSystem(procfs.NewDefaultFS, procfs.FS.LoadAvg)
	if err != nil {
		return 0
	}
	return avg.Load1
}

// usageOf returns the usage so far. own is that of the process pid, which is 0 if it is unknown.
func usageOf(r *run, pid int) usage {
	u := usage{at: time.Now(), own: -1, broker: -1, clients: cpuTime(os.Getpid()), machine: machineTime(), steps: -1}
	if pid != 0 {
		u.own = cpuTime(pid)
	}
	if r.serving != nil && pid == r.serving.pid() {
		if n, err := r.serving.metric(context.Background(), "waterclock_transactions_total"); err == nil {
			u.steps = n
		}
	}
	if r.cluster != nil {
		u.broker = 0
		for _, b := range r.cluster.Brokers {
			u.broker += cpuTime(b.Pid())
		}
	}
	return u
}

// since divides the usage since then by a number of timers. It returns nil if that is unknown.
func (u usage) since(then usage, timers int) *CPU {
	if u.own < 0 || then.own < 0 || timers == 0 {
		return nil
	}
	per := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) / float64(timers) }
	c := &CPU{Own: per(u.own - then.own), Clients: per(u.clients - then.clients)}
	mine := u.own - then.own + u.clients - then.clients
	if u.broker >= 0 {
		c.Broker = per(u.broker - then.broker)
		mine += u.broker - then.broker
	}
	if room := u.at.Sub(then.at) * time.Duration(runtime.NumCPU()); u.machine >= 0 && room > 0 {
		c.Others = max(0, float64(u.machine-then.machine-mine)/float64(room))
	}
	return c
}

// meter measures the usage during a phase.
type meter struct {
	r          *run
	pid        int // of the service or the bare loop
	begin, end usage
}

func (m *meter) start(pid int) {
	m.pid = pid
	m.begin = usageOf(m.r, pid)
}

func (m *meter) stop() { m.end = usageOf(m.r, m.pid) }

// during measures within w, which has not begun. over waits until w or ctx ends.
func (m *meter) during(ctx context.Context, pid int, w window) (over func()) {
	var measuring sync.WaitGroup
	measuring.Go(func() {
		if !sleepUntil(ctx, w.from) {
			return
		}
		m.start(pid)
		sleepUntil(ctx, w.to)
		m.stop()
	})
	return measuring.Wait
}

func sleepUntil(ctx context.Context, at time.Time) bool {
	return beats.Sleep(ctx, time.Until(at))
}

// cost returns the usage per timer, call or record.
func (m *meter) cost(n int) (cpu *CPU, perStep, stepsPerSecond float64) {
	cpu = m.end.since(m.begin, n)
	if steps := m.end.steps - m.begin.steps; m.begin.steps >= 0 && steps > 0 {
		perStep, stepsPerSecond = float64(n)/float64(steps), float64(steps)/m.end.at.Sub(m.begin.at).Seconds()
	}
	return cpu, perStep, stepsPerSecond
}

// measure records the cost per timer.
func (m *meter) measure(p *Phase, timers int) {
	p.CPU, p.PerStep, p.Transactions = m.cost(timers)
}

// profileSpan is the duration of one profile of the instance. A phase has several, which go tool pprof adds up. The
// time after the last whole one is not profiled.
const profileSpan = time.Second

// profileTimeout bounds one answer of the profiler.
const profileTimeout = time.Minute

// profile writes profiles of the instance's processor time until the returned function is called, and then profiles of
// its allocations and of the waiting of its goroutines since it started. It does nothing without --profiles.
func (r *run) profile(name string) (stop func()) {
	if r.Profiles == "" || r.serving.pid() == 0 {
		return func() {}
	}
	name = strings.Map(func(c rune) rune {
		if c == '/' || c == ' ' {
			return '-'
		}
		return c
	}, name)
	end := background(context.Background(), func(ctx context.Context) {
		for n := 1; ctx.Err() == nil; n++ {
			path := filepath.Join(r.Profiles, fmt.Sprintf("service-%s-%d.pprof", name, n))
			what := fmt.Sprintf("profile?seconds=%d", profileSpan/time.Second)
			if err := fetchProfile(ctx, r.serving.pprof, what, path); err != nil && ctx.Err() == nil {
				r.Log.Warn("cannot profile the instance", "err", err)
				return
			}
		}
	})
	return func() {
		end()
		for _, what := range []string{"allocs", "block", "mutex"} {
			path := filepath.Join(r.Profiles, fmt.Sprintf("service-%s-%s.pprof", name, what))
			if err := fetchProfile(context.Background(), r.serving.pprof, what, path); err != nil {
				r.Log.Warn("cannot profile the instance", "profile", what, "err", err)
			}
		}
	}
}

// fetchProfile writes a profile that an instance returns.
func fetchProfile(ctx context.Context, addr, what, path string) error {
	status, b, err := get(ctx, fmt.Sprintf("http://%s/debug/pprof/%s", addr, what), profileTimeout)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("profile: %d", status)
	}
	return os.WriteFile(path, b, 0o644)
}
