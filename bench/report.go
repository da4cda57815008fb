package bench

import (
	"encoding/json"
	"io"
	"time"

	"github.com/waterclock/waterclock/internal/audit/history"
)

// Report is the result of a run of a workload.
type Report struct {
	Workload string  `json:"workload"`
	Rate     float64 `json:"rate,omitempty"`
	// Verified means that every timer fired once, not early, and as it was scheduled. Otherwise there are no figures
	// except the counts.
	Verified bool `json:"verified"`
	// Ratio is a figure of waterclock divided by that of the bare loop in the same run, and CPURatio is the same for
	// processor time. Both are medians of the rounds; 0 if unknown.
	Ratio      float64 `json:"ratio,omitempty"`
	RatioIs    string  `json:"ratio_is,omitempty"`
	CPURatio   float64 `json:"cpu_ratio,omitempty"`
	CPURatioIs string  `json:"cpu_ratio_is,omitempty"`
	// PeakRSS is that of the instance, in bytes; 0 if unknown.
	PeakRSS int64   `json:"peak_rss_bytes,omitempty"`
	Machine Machine `json:"machine"`
	// Phases are in the order in which they ran; those of bare loops are Bare.
	Phases []*Phase `json:"phases,omitempty"`
	// Calls are those of the HTTP API and of bare servers, in the order in which they were made.
	Calls []*Calls `json:"calls,omitempty"`
	// Ratios are those besides Ratio.
	Ratios []Ratio `json:"ratios,omitempty"`
	Starts []Start `json:"starts,omitempty"`
	Sizes  *Sizes  `json:"sizes,omitempty"`
	// Constants are those that waterclock plan calculates with, ordered by name.
	Constants []Constant `json:"constants,omitempty"`

	ratios, cpuRatios []float64 // by round
}

// Machine describes the machine and the topics of a run.
type Machine struct {
	CPUs int `json:"cpus"`
	// Load is that of the minute before the run; 0 if unknown.
	Load       float64 `json:"load"`
	Brokers    int     `json:"local_brokers,omitempty"` // started by the run
	Partitions int     `json:"partitions"`
	ValueBytes int     `json:"value_bytes"`
	Events     bool    `json:"events,omitempty"` // the instance writes them
}

// Phase is one measurement of a number of timers, or of records that stand for timers.
type Phase struct {
	Name string `json:"name"`
	Bare bool   `json:"bare"`
	// Rate is the number of timers offered per second; 0 for as many as possible.
	Rate float64 `json:"rate,omitempty"`
	// Seconds is the time from the first request, or from the due time of a burst, to the last receipt. PerSecond is
	// the speed, unless Rate limits it.
	Seconds   float64 `json:"seconds,omitempty"`
	PerSecond float64 `json:"per_second,omitempty"`
	// Lateness by the emission's timestamp and by the consumer's clock.
	ByTimestamp *Lateness `json:"lateness_by_timestamp,omitempty"`
	ByReceipt   *Lateness `json:"lateness_by_receipt,omitempty"`
	CPU         *CPU      `json:"cpu,omitempty"` // per timer
	// PerStep is the average number of timers in a transaction. A timer that is scheduled and fires in the same phase
	// is in two transactions.
	PerStep float64 `json:"per_transaction,omitempty"`
	// Transactions is the number of transactions that the instance committed per second.
	Transactions float64 `json:"transactions_per_second,omitempty"`
	// Silence is the longest time in which one of the partitions of a move emitted nothing, in ms.
	Silence float64 `json:"silence_ms,omitempty"`
	// OwnP50 and OwnP99 are quantiles of the instances' own lateness, in ms: the timestamp of an emission minus its due
	// time or, if its request was read later than that, minus the time when it was read.
	OwnP50 float64 `json:"own_p50_ms,omitempty"`
	OwnP99 float64 `json:"own_p99_ms,omitempty"`
	// PeakRSS is that of the instance so far, in bytes.
	PeakRSS int64          `json:"peak_rss_bytes,omitempty"`
	Exact   history.Counts `json:"exact"`
	Note    string         `json:"note,omitempty"`
}

// Ratio is a figure of waterclock divided by one that it is compared with. For throughput more is better, for lateness
// less.
type Ratio struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// Start is one start of an instance.
type Start struct {
	Name    string  `json:"name"`
	Pending int     `json:"pending"`
	Seconds float64 `json:"seconds_to_ready"` // from process start to the first 200 of /readyz
	// Replayed is the number of replayed offsets of the changelog.
	Replayed int64   `json:"replayed"`
	CPU      float64 `json:"cpu_seconds,omitempty"` // until ready
	// RSS and PeakRSS of the process when ready, in bytes; 0 if unknown.
	RSS     int64 `json:"rss_bytes"`
	PeakRSS int64 `json:"peak_rss_bytes"`
	// OverdueSeconds is the time from ready to the last receipt of the timers that fell due while no instance ran.
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

// add adds a phase, which it returns.
func (rep *Report) add(p *Phase) *Phase {
	rep.Phases = append(rep.Phases, p)
	return p
}

// round adds the ratios of one round, if there are figures to compare with.
func (rep *Report) round(value, base float64, cpu *CPU, cpuBase float64) {
	if base > 0 {
		rep.ratios = append(rep.ratios, value/base)
	}
	if cpu != nil && cpuBase > 0 {
		rep.cpuRatios = append(rep.cpuRatios, cpu.Own/cpuBase)
	}
}

// ratio adds value/base, if there is a figure to compare with.
func (rep *Report) ratio(name string, value, base float64) {
	if base > 0 {
		rep.Ratios = append(rep.Ratios, Ratio{Name: name, Value: value / base})
	}
}

// finish sums the rounds up. If emissions were not exact, it removes the figures.
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
		rep.PeakRSS, rep.Calls, rep.Ratios, rep.Starts, rep.Sizes, rep.Constants = 0, nil, nil, nil, nil, nil
		return
	}
	if len(rep.ratios) > 0 {
		rep.Ratio = median(rep.ratios)
	}
	if len(rep.cpuRatios) > 0 {
		rep.CPURatio = median(rep.cpuRatios)
	}
}

// perSecond records the speed of a number of timers.
func (p *Phase) perSecond(timers int, from, to time.Time) {
	if p.Seconds = to.Sub(from).Seconds(); p.Seconds > 0 {
		p.PerSecond = float64(timers) / p.Seconds
	}
}

// late records the lateness of the timers that were due within w.
func (p *Phase) late(b *batch, w window) { p.ByTimestamp, p.ByReceipt = b.lateness(w) }

// verify records the outcomes of all timers, and returns an error if they were not exact.
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
