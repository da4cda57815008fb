package bench

import (
	"context"
	"os"
	"runtime"
	"time"

	"github.com/prometheus/procfs"
)

// usage is processor time that was used up to a moment. A field is negative if
// the system does not tell: Linux does.
type usage struct {
	at      time.Time
	own     time.Duration // of the service, or of the bare loop in its place
	broker  time.Duration
	clients time.Duration // of this process, which schedules and receives
	machine time.Duration // all of it
	steps   int64         // transactions of the instance; negative if unknown
}

// CPU is processor time in µs per timer, and what else went on meanwhile.
type CPU struct {
	Own     float64 `json:"own_us"`              // the service, or the bare loop in its place
	Broker  float64 `json:"broker_us,omitempty"` // if the run has started it
	Clients float64 `json:"clients_us"`          // the process that schedules, receives and verifies
	// Others is the share of the machine's processor time that went to others.
	Others float64 `json:"others"`
}

// own is 0 if nothing is known.
func (c *CPU) own() float64 {
	if c == nil {
		return 0
	}
	return c.Own
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// cpuTime is the processor time of a process so far, of all its threads.
func cpuTime(pid int) time.Duration {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return -1
	}
	stat, err := p.Stat()
	if err != nil {
		return -1
	}
	return seconds(stat.CPUTime())
}

// machineTime is what all processes and the kernel have used so far.
func machineTime() time.Duration {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return -1
	}
	stat, err := fs.Stat()
	if err != nil {
		return -1
	}
	c := stat.CPUTotal
	return seconds(c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ) // not idle, nor waits for a disk
}

// memory reads the resident size of a process and its peak, in bytes; 0 if the
// system does not tell.
func memory(pid int) (rss, peak int64) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0
	}
	status, err := p.NewStatus()
	if err != nil {
		return 0, 0
	}
	return int64(status.VmRSS), int64(status.VmHWM)
}

// load is the machine's load over the last minute; 0 if the system does not tell.
func load() float64 {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	avg, err := fs.LoadAvg()
	if err != nil {
		return 0
	}
	return avg.Load1
}

// usageOf is what has been used by now, by the process pid among others; 0 stands for
// an unknown process.
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

// since divides what was used since then by a number of timers. It is nil if
// the system does not tell.
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

// meter reads what is used in the course of a phase.
type meter struct {
	r          *run
	pid        int // of the process whose processor time is told apart
	begin, end usage
}

func (m *meter) start(pid int) {
	m.pid = pid
	m.begin = usageOf(m.r, pid)
}

func (m *meter) stop() { m.end = usageOf(m.r, m.pid) }

// during reads what is used within w, which has not begun. It ends with w or ctx.
func (m *meter) during(ctx context.Context, pid int, w window) (done <-chan struct{}) {
	over := make(chan struct{})
	go func() {
		defer close(over)
		if !sleepUntil(ctx, w.from) {
			return
		}
		m.start(pid)
		sleepUntil(ctx, w.to)
		m.stop()
	}()
	return over
}

func sleepUntil(ctx context.Context, at time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Until(at)):
		return true
	}
}

// cost is what was used for each of a number of timers, calls or records.
func (m *meter) cost(n int) (cpu *CPU, perStep, stepsPerSecond float64) {
	cpu = m.end.since(m.begin, n)
	if steps := m.end.steps - m.begin.steps; m.begin.steps >= 0 && steps > 0 {
		perStep, stepsPerSecond = float64(n)/float64(steps), float64(steps)/m.end.at.Sub(m.begin.at).Seconds()
	}
	return cpu, perStep, stepsPerSecond
}

// measure notes what was used for each of a number of timers.
func (m *meter) measure(p *Phase, timers int) {
	p.CPU, p.PerStep, p.Transactions = m.cost(timers)
}
