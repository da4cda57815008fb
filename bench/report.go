package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Report is what a run measured.
type Report struct {
	Workload string `json:"workload"`
	CPUs     int    `json:"cpus"`
	// Phases are in order of running; those of a limit of the machine are Bare.
	Phases []Phase `json:"phases,omitempty"`
	// Ratios compare phases by name.
	Ratios []Ratio `json:"ratios,omitempty"`
	Starts []Start `json:"starts,omitempty"`
	Sizes  *Sizes  `json:"sizes,omitempty"`
}

// Phase is one measurement over a number of timers, or of records that stand
// for timers.
type Phase struct {
	Name string `json:"name"`
	Bare bool   `json:"bare"`
	// Rate is how many a second were offered; 0 for as many as possible.
	Rate float64 `json:"rate,omitempty"`
	// Seconds are from the first request, or from Due of a burst, to the last
	// receipt; PerSecond is how many that makes where Rate does not limit it.
	Seconds   float64 `json:"seconds"`
	PerSecond float64 `json:"per_second,omitempty"`
	// Lateness by the emission's timestamp and by the consumer's clock.
	ByTimestamp *Lateness `json:"lateness_by_timestamp,omitempty"`
	ByReceipt   *Lateness `json:"lateness_by_receipt,omitempty"`
	Exact       Exactness `json:"exact"`
	Note        string    `json:"note,omitempty"`
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
	Replayed int64 `json:"replayed"`
	// RSS and PeakRSS of the process when ready, in bytes; 0 where unknown.
	RSS     int64 `json:"rss_bytes"`
	PeakRSS int64 `json:"peak_rss_bytes"`
	// OverdueSeconds are from ready to the last receipt of what fell due while
	// nobody ran.
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

// WriteJSON writes the report as indented JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteTable writes the report for people.
func (r *Report) WriteTable(w io.Writer) {
	fmt.Fprintf(w, "%s, %d CPUs\n", r.Workload, r.CPUs)
	if len(r.Phases) > 0 {
		r.writePhases(w)
	}
	if len(r.Starts) > 0 {
		r.writeStarts(w)
	}
	if s := r.Sizes; s != nil {
		t := newTable(w)
		t.AppendHeader(table.Row{"pending", "request", "disk per timer", "memory per timer", "peak while scheduling"})
		t.AppendRow(table.Row{s.Pending, s.Request, fmt.Sprintf("%.0f B", s.Disk), fmt.Sprintf("%.1f B", s.Memory), fmt.Sprintf("%.1f B", s.PeakMemory)})
		t.Render()
	}
	for _, x := range r.Ratios {
		fmt.Fprintf(w, "%s: %.2f\n", x.Name, x.Value)
	}
}

func (r *Report) writePhases(w io.Writer) {
	t := newTable(w)
	t.AppendHeader(table.Row{"phase", "timers", "per second", "late by timestamp", "late by receipt", "lost", "doubled", "early", "altered", ""})
	for i := range r.Phases {
		p := &r.Phases[i]
		e := p.Exact
		rate := strconv.FormatFloat(p.PerSecond, 'f', 0, 64)
		if p.Rate > 0 {
			rate = strconv.FormatFloat(p.Rate, 'f', 0, 64) + " offered"
		}
		t.AppendRow(table.Row{p.Name, e.Scheduled, rate,
			p.ByTimestamp.String(), p.ByReceipt.String(), e.Lost, e.Doubled, e.Early, e.Altered, p.Note})
	}
	t.Render()
	fmt.Fprintln(w, legend)
}

// legend explains the columns of the phases.
const legend = `late: how long after their due time timers fired, as p50/p99/max: half of them, 99 of 100, all of them within that.
By timestamp: until the service wrote the emission; by receipt: until a read_committed consumer had it.
lost, doubled, early and altered must be 0, or the other figures count for nothing.`

// String writes p50/p99/max.
func (l *Lateness) String() string {
	if l == nil {
		return ""
	}
	return fmt.Sprintf("%.1f/%.1f/%.1f ms", l.P50, l.P99, l.Max)
}

func (r *Report) writeStarts(w io.Writer) {
	t := newTable(w)
	t.AppendHeader(table.Row{"start", "pending", "ready after", "replayed", "RSS", "peak RSS", "overdue done after"})
	for _, s := range r.Starts {
		t.AppendRow(table.Row{s.Name, s.Pending, fmt.Sprintf("%.2f s", s.Seconds), s.Replayed, mib(s.RSS), mib(s.PeakRSS), fmt.Sprintf("%.2f s", s.OverdueSeconds)})
	}
	t.Render()
}

func newTable(w io.Writer) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	return t
}

func mib(n int64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }

func newReport(workload string) *Report {
	return &Report{Workload: workload, CPUs: runtime.NumCPU()}
}

// ratio adds value/of, unless there is nothing to compare with.
func (r *Report) ratio(name string, value, of float64) {
	if of > 0 {
		r.Ratios = append(r.Ratios, Ratio{Name: name, Value: value / of})
	}
}
