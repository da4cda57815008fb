package bench

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// WriteTable writes the report for people, in lines of at most 100 columns.
func (rep *Report) WriteTable(w io.Writer) {
	m := rep.Machine
	fmt.Fprintf(w, "%s: %d bytes a timer, %d partitions; %d CPUs, load before %.1f", rep.title(), m.ValueBytes,
		m.Partitions, m.CPUs, m.Load)
	if m.Events {
		fmt.Fprint(w, "; events")
	}
	if m.Brokers > 0 {
		fmt.Fprintf(w, "; local brokers: %d", m.Brokers)
	}
	fmt.Fprint(w, "\n\n")
	if !rep.Verified {
		rep.writeWrong(w)
		return
	}
	if len(rep.Phases) > 0 {
		rep.writePhases(w)
	}
	if len(rep.Calls) > 0 {
		rep.writeCalls(w)
	}
	if len(rep.Starts) > 0 {
		rep.writeStarts(w)
	}
	rep.writeSizes(w)
	rep.writeRatios(w)
	rep.writeConstantsTable(w)
	fmt.Fprintln(w, "\nverified: every emission came once, unchanged and not early")
}

func (rep *Report) title() string {
	if rep.Rate > 0 {
		return fmt.Sprintf("%s %.0f/s", rep.Workload, rep.Rate)
	}
	return rep.Workload
}

// grid is a table. Names are aligned to the left, figures to the right.
type grid struct{ rows [][]string }

func (g *grid) row(cells ...string) { g.rows = append(g.rows, cells) }

func (g *grid) write(w io.Writer) {
	width := 0
	for _, cells := range g.rows {
		width = max(width, utf8.RuneCountInString(cells[0]))
	}
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', tabwriter.AlignRight)
	for _, cells := range g.rows {
		fmt.Fprintf(t, "%-*s\t%s\t\n", width, cells[0], strings.Join(cells[1:], "\t"))
	}
	t.Flush()
}

func (rep *Report) writeWrong(w io.Writer) {
	fmt.Fprintln(w, "NOT EXACT, so there are no figures:")
	g := &grid{}
	g.row("", "timers", "lost", "duplicated", "early", "altered")
	for _, p := range rep.Phases {
		e := p.Exact
		cells := []string{p.Name}
		for _, n := range []int{e.Scheduled, e.Lost, e.Duplicated, e.Early, e.Altered} {
			cells = append(cells, strconv.Itoa(n))
		}
		g.row(cells...)
	}
	g.write(w)
}

func (rep *Report) writePhases(w io.Writer) {
	g := &grid{}
	g.row("", "timers", "a second", "late ms", "p99", "max", "own µs", "broker", "clients", "step", "peak")
	for _, p := range rep.Phases {
		g.row(slices.Concat([]string{p.Name, strconv.Itoa(p.Exact.Scheduled), p.speed()}, p.ByReceipt.cells(),
			p.costs())...)
	}
	g.write(w)
	for _, p := range rep.Phases {
		if p.Note != "" {
			fmt.Fprintf(w, "%s: %s\n", p.Name, p.Note)
		}
	}
	fmt.Fprintf(w, legend, 100*rep.others())
}

// others returns the largest share of the machine that other processes had in a phase.
func (rep *Report) others() (most float64) {
	for _, p := range rep.Phases {
		if p.CPU != nil {
			most = max(most, p.CPU.Others)
		}
	}
	return most
}

// legend explains the columns of the phases.
const legend = `
late ms: by receipt, in ms: half of the timers, 99 of 100, and all of them within that
own, broker, clients: processor time for a timer, in µs, of the service (or of the bare loop), of
  the brokers if this run started them, and of the process that schedules and receives
step: timers for each transaction; peak: memory of the service so far, in MiB
Others had at most %.0f %% of the machine in any phase.
`

func (p *Phase) speed() string {
	switch {
	case p.PerSecond > 0:
		return strconv.FormatFloat(p.PerSecond, 'f', 0, 64)
	case p.Rate > 0:
		return strconv.FormatFloat(p.Rate, 'f', 0, 64)
	}
	return ""
}

func (l *Lateness) cells() []string {
	if l == nil {
		return []string{"", "", ""}
	}
	cells := make([]string, 0, 3)
	for _, v := range []float64{l.P50, l.P99, l.Max} {
		cells = append(cells, strconv.FormatFloat(v, 'f', 1, 64))
	}
	return cells
}

func (p *Phase) costs() []string {
	cells := []string{"", "", "", "", ""}
	if c := p.CPU; c != nil {
		cells[0], cells[2] = fmt.Sprintf("%.1f", c.Own), fmt.Sprintf("%.1f", c.Clients)
		if c.Broker > 0 {
			cells[1] = fmt.Sprintf("%.1f", c.Broker)
		}
	}
	if p.PerStep > 0 {
		cells[3] = fmt.Sprintf("%.0f", p.PerStep)
	}
	if p.PeakRSS > 0 {
		cells[4] = strings.TrimSuffix(mib(p.PeakRSS), " MiB")
	}
	return cells
}

func (rep *Report) writeCalls(w io.Writer) {
	g := &grid{}
	g.row("", "callers", "calls", "a second", "ms", "p99", "max", "own µs", "broker", "clients", "step")
	others := 0.0
	for _, c := range rep.Calls {
		costs := (&Phase{CPU: c.CPU, PerStep: c.PerStep}).costs()
		cells := slices.Concat(
			[]string{c.Name, strconv.Itoa(c.Callers), strconv.Itoa(c.Calls),
				strconv.FormatFloat(c.PerSecond, 'f', 0, 64)}, c.Answered.cells(), costs[:4])
		g.row(cells...)
		if c.CPU != nil {
			others = max(others, c.CPU.Others)
		}
	}
	fmt.Fprintln(w)
	g.write(w)
	fmt.Fprintf(w, callsLegend, 100*others)
}

// callsLegend explains the columns of the calls.
const callsLegend = `
ms: from a call to the end of its answer: half of the calls, 99 of 100, and all of them
own, broker, clients: processor time for a call, in µs; step: calls for each transaction
Others had at most %.0f %% of the machine while calls were made.
`

func (rep *Report) writeStarts(w io.Writer) {
	g := &grid{}
	g.row("start", "pending", "ready after", "replayed", "cpu", "memory", "peak", "overdue fired after")
	for _, s := range rep.Starts {
		g.row(s.Name, strconv.Itoa(s.Pending), fmt.Sprintf("%.2f s", s.Seconds), strconv.FormatInt(s.Replayed, 10),
			fmt.Sprintf("%.2f s", s.CPU),
			mib(s.RSS), mib(s.PeakRSS), fmt.Sprintf("%.2f s", s.OverdueSeconds))
	}
	fmt.Fprintln(w)
	g.write(w)
}

func (rep *Report) writeSizes(w io.Writer) {
	s := rep.Sizes
	if s == nil {
		return
	}
	fmt.Fprintf(w, "\na pending timer of %d, a request of %d bytes: on disk %.0f B", s.Pending, s.Request, s.Disk)
	if s.PeakMemory > 0 {
		fmt.Fprintf(w, ",\n  in memory %.1f B, at the peak while it was scheduled %.1f B", s.Memory, s.PeakMemory)
	}
	fmt.Fprintln(w)
}

func (rep *Report) writeRatios(w io.Writer) {
	fmt.Fprintln(w)
	if rep.Ratio > 0 {
		fmt.Fprintf(w, "ratio      %5.2f   %s\n", rep.Ratio, rep.RatioIs)
	}
	if rep.CPURatio > 0 {
		fmt.Fprintf(w, "cpu ratio  %5.2f   %s\n", rep.CPURatio, rep.CPURatioIs)
	}
	for _, x := range rep.Ratios {
		fmt.Fprintf(w, "           %5.2f   %s\n", x.Value, x.Name)
	}
}

func mib(n int64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }
