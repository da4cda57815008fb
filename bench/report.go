package bench

import (
	"encoding/json"
	"io"
	"runtime"
	"time"

	"github.com/waterclock/waterclock/internal/history"
)

// Report is what a run measured of a workload.
type Report struct {
	Workload string  `json:"workload"`
	Rate     float64 `json:"rate,omitempty"`
	// Verified says that every emission came once, not early and as it was
	// scheduled. Otherwise there are no figures but the counts.
	Verified bool `json:"verified"`
	// Ratio is a figure of waterclock over the machine's own in the same run, and
	// CPURatio one of processor time: medians of the rounds. 0 if unknown.
	Ratio      float64 `json:"ratio,omitempty"`
	RatioIs    string  `json:"ratio_is,omitempty"`
	CPURatio   float64 `json:"cpu_ratio,omitempty"`
	CPURatioIs string  `json:"cpu_ratio_is,omitempty"`
	// PeakRSS is that of the instance, in bytes; 0 if unknown.
	PeakRSS int64   `json:"peak_rss_bytes,omitempty"`
	Machine Machine `json:"machine"`
	// Phases are in order of running; those of a limit of the machine are Bare.
	Phases []*Phase `json:"phases,omitempty"`
	// Calls are those of the HTTP API, in order of running, and of bare servers.
	Calls []*Calls `json:"calls,omitempty"`
	// Ratios are further ones, by round.
	Ratios []Ratio `json:"ratios,omitempty"`
	Starts []Start `json:"starts,omitempty"`
	// Idle is what an idle instance and its brokers use, in µs a
	// second: 10,000 are 1 % of a core.
	Idle *CPU `json:"idle,omitempty"`
	// IdleBroker is what the brokers use alone, in the same unit.
	IdleBroker float64 `json:"idle_broker_us,omitempty"`
	Sizes      *Sizes  `json:"sizes,omitempty"`

	ratios, cpuRatios []float64 // by round
}

// Machine is what a run was made on.
type Machine struct {
	CPUs int `json:"cpus"`
	// Load is that of the minute before the run; 0 if unknown.
	Load       float64 `json:"load"`
	Brokers    int     `json:"local_brokers,omitempty"` // started by the run
	Partitions int     `json:"partitions"`
	ValueBytes int     `json:"value_bytes"`
	Events     bool    `json:"events,omitempty"` // the instance writes them
}

// Phase is one measurement over a number of timers, or of records that stand
// for timers.
type Phase struct {
	Name string `json:"name"`
	Bare bool   `json:"bare"`
	// Rate is how many a second were offered; 0 for as many as possible.
	Rate float64 `json:"rate,omitempty"`
	// Seconds are from the first request, or from Due of a burst, to the last
	// receipt; PerSecond is the speed, unless Rate limits it.
	Seconds   float64 `json:"seconds,omitempty"`
	PerSecond float64 `json:"per_second,omitempty"`
	// Lateness by the emission's timestamp and by the consumer's clock.
	ByTimestamp *Lateness `json:"lateness_by_timestamp,omitempty"`
	ByReceipt   *Lateness `json:"lateness_by_receipt,omitempty"`
	CPU         *CPU      `json:"cpu,omitempty"` // per timer
	// PerStep is how many timers went into a transaction, on average; of timers that
	// are scheduled and fire in the same phase that makes two things to do each.
	PerStep float64 `json:"per_transaction,omitempty"`
	// Transactions are how many the instance committed a second.
	Transactions float64 `json:"transactions_per_second,omitempty"`
	// Silence is for how long nothing came from one of the partitions of a move, in ms.
	Silence float64 `json:"silence_ms,omitempty"`
	// Interval is the firing interval of a curve's point, in ms; nil: not one of its points.
	Interval *float64 `json:"interval_ms,omitempty"`
	// OwnP50 and OwnP99 are how late emissions were by the instances' own doing, in ms by their timestamps:
	// from when they were due, or their requests were read if that was later.
	OwnP50 float64 `json:"own_p50_ms,omitempty"`
	OwnP99 float64 `json:"own_p99_ms,omitempty"`
	// PeakRSS is that of the instance so far, in bytes.
	PeakRSS int64          `json:"peak_rss_bytes,omitempty"`
	Exact   history.Counts `json:"exact"`
	Note    string         `json:"note,omitempty"`
}

// Ratio is a figure of waterclock over the machine's own: of throughputs more is
// better, of latenesses less.
type Ratio struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Start is one start of an instance.
type Start struct {
	Name    string  `json:"name"`
	Pending int     `json:"pending"`
	Seconds float64 `json:"seconds_to_ready"` // from process start to the first 200 of /readyz
	// Replayed is how many offsets of the changelog it went through.
	Replayed int64   `json:"replayed"`
	CPU      float64 `json:"cpu_seconds,omitempty"` // until ready
	// RSS and PeakRSS of the process when ready, in bytes; 0 if unknown.
	RSS     int64 `json:"rss_bytes"`
	PeakRSS int64 `json:"peak_rss_bytes"`
	// OverdueSeconds are from ready to the last receipt of what fell due while
	// no instance ran.
	OverdueSeconds float64 `json:"overdue_seconds,omitempty"`
}

// Sizes are per pending timer, in bytes.
type Sizes struct {
	Pending    int     `json:"pending"`
	Request    int     `json:"request_bytes"` // ID, value and headers of one request
	Disk       float64 `json:"disk_bytes_per_timer"`
	Memory     float64 `json:"memory_bytes_per_timer"`      // RSS after a restart, above that of an empty instance
	PeakMemory float64 `json:"peak_memory_bytes_per_timer"` // the same of the peak while scheduling
}

func newReport(r *run, workload string) *Report {
	m := Machine{CPUs: runtime.NumCPU(), Load: load(), Partitions: r.partitions, ValueBytes: r.ValueBytes, Events: r.Events}
	if r.cluster != nil {
		m.Brokers = len(r.cluster.Brokers)
	}
	return &Report{Workload: workload, Machine: m}
}

// round adds the ratios of one round, unless there is nothing to compare with.
func (rep *Report) round(value, of float64, cpu *CPU, cpuOf float64) {
	if of > 0 {
		rep.ratios = append(rep.ratios, value/of)
	}
	if cpu != nil && cpuOf > 0 {
		rep.cpuRatios = append(rep.cpuRatios, cpu.Own/cpuOf)
	}
}

// ratio adds value/of, unless there is nothing to compare with.
func (rep *Report) ratio(name string, value, of float64) {
	if of > 0 {
		rep.Ratios = append(rep.Ratios, Ratio{Name: name, Value: value / of})
	}
}

// finish draws the sum of the rounds, or takes the figures away if emissions were
// not exact.
func (rep *Report) finish() {
	rep.Verified = true
	for _, p := range rep.Phases {
		rep.Verified = rep.Verified && p.Exact.Wrong() == 0
		rep.PeakRSS = max(rep.PeakRSS, p.PeakRSS)
	}
	if !rep.Verified {
		for _, p := range rep.Phases {
			*p = Phase{Name: p.Name, Bare: p.Bare, Rate: p.Rate, Exact: p.Exact, Note: p.Note}
		}
		rep.PeakRSS, rep.Calls, rep.Ratios, rep.Starts, rep.Idle, rep.IdleBroker, rep.Sizes = 0, nil, nil, nil, nil, 0, nil
		return
	}
	if len(rep.ratios) > 0 {
		rep.Ratio = median(rep.ratios)
	}
	if len(rep.cpuRatios) > 0 {
		rep.CPURatio = median(rep.cpuRatios)
	}
}

// perSecond notes how fast a number of timers went through.
func (p *Phase) perSecond(timers int, from, to time.Time) {
	if p.Seconds = to.Sub(from).Seconds(); p.Seconds > 0 {
		p.PerSecond = float64(timers) / p.Seconds
	}
}

// late notes how late the timers were that were due within w.
func (p *Phase) late(b *batch, w window) { p.ByTimestamp, p.ByReceipt = b.lateness(w) }

// verify notes what became of all timers, and fails if that is not as it must be.
func (p *Phase) verify(b *batch) error {
	p.Exact = b.Counts()
	return p.Exact.Err(p.Name)
}

// WriteJSON writes the report as indented JSON.
func (rep *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(rep)
}
