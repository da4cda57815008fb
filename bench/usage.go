package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// ticks is how many a second the kernel counts processor time in, as it shows it
// to programs: the same on every Linux.
const ticks = 100

// usage is processor time that was used up to a moment. A field is negative where
// the system does not tell: it is Linux that does.
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
	Broker  float64 `json:"broker_us,omitempty"` // where the run has started it
	Clients float64 `json:"clients_us"`          // who schedules, receives and verifies
	// Others is the share of the machine's processor time that went to others.
	Others float64 `json:"others"`
}

// cpuTime is the processor time of a process so far, of all its threads.
func cpuTime(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return -1
	}
	return parseStat(b)
}

// parseStat reads utime and stime, the fields 14 and 15 of a /proc/PID/stat. The
// second field is a name in parentheses that may hold anything.
func parseStat(b []byte) time.Duration {
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 13 {
		return -1
	}
	return parseTicks(f[11]) + parseTicks(f[12])
}

func parseTicks(b []byte) time.Duration {
	n, _ := strconv.ParseInt(string(b), 10, 64) // the kernel writes numbers
	return time.Duration(n) * time.Second / ticks
}

// machineTime is what all processes and the kernel have used so far.
func machineTime() time.Duration {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return -1
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	f := bytes.Fields(line)
	if len(f) < 8 {
		return -1
	}
	sum := time.Duration(0)
	for _, i := range []int{1, 2, 3, 6, 7} { // user, nice, system, irq, softirq; not idle, nor waits for a disk
		sum += parseTicks(f[i])
	}
	return sum
}

// usageOf is what has been used by now, by the process pid among others; 0 is
// nobody known.
func (r *run) usageOf(pid int) usage {
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

// since divides what was used since then by a number of timers. It is nil where
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
	*run
	pid        int // whose processor time is told apart
	begin, end usage
}

func (m *meter) start(pid int) {
	m.pid = pid
	m.begin = m.usageOf(pid)
}

func (m *meter) stop() { m.end = m.usageOf(m.pid) }

// measure notes what was used for each of a number of timers.
func (m *meter) measure(p *Phase, timers int) {
	p.CPU = m.end.since(m.begin, timers)
	if steps := m.end.steps - m.begin.steps; m.begin.steps >= 0 && steps > 0 {
		p.PerStep = float64(timers) / float64(steps)
		p.Transactions = float64(steps) / m.end.at.Sub(m.begin.at).Seconds()
	}
}

// memory reads resident size and its peak of a process, in bytes; 0 where the
// system does not tell.
func memory(pid int) (rss, peak int64) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
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

// load is the machine's load over the last minute; 0 where the system does not tell.
func load() float64 {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(b), " ")
	f, _ := strconv.ParseFloat(first, 64) // the kernel writes numbers
	return f
}
