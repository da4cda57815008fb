package partition

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// histogram returns a registry's histogram for one topic, or the one without labels for "".
func histogram(t *testing.T, reg prometheus.Gatherer, name, topic string) *dto.Histogram {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && (topic == "" || m.GetLabel()[0].GetValue() == topic) {
				return m.GetHistogram()
			}
		}
	}
	t.Fatalf("there is no %s of %q", name, topic)
	return nil
}

// A step is sealed in time and its commit takes 7 s, so consumers wait for 7 s. The gauge shows that in between, even
// between two tries, and the histogram of commits shows it afterwards.
func TestConsumersWaitForTheCommit(t *testing.T) {
	c := newCore(t, newSetup(t), 1<<20, 1000)
	reg := prometheus.NewRegistry()
	c.o.Metrics = NewMetrics(reg)
	c.process()
	c.acquire()
	c.o.Metrics.Serve("r")
	c.schedule(1, 1000)
	c.deliver(1)
	c.open()
	c.work()
	c.seal(10)
	c.commit()
	c.apply()
	c.load()
	waits := func(what string, want time.Duration) {
		t.Helper()
		if s := c.p.Status(); s.Uncommitted != want {
			t.Errorf("%s: the oldest uncommitted one waits for %s, want %s", what, s.Uncommitted, want)
		}
	}
	waits("not due", 0)
	c.pass(c.due(c.requests[0]) - c.now)
	c.seal(10)
	if c.share == nil || len(c.share.Emissions) != 1 {
		t.Fatalf("sealed %+v, want one emission", c.share)
	}
	c.pass(3000)
	waits("sealed", 3*time.Second)
	c.abort()
	waits("the step was aborted", 3*time.Second)
	c.seal(10)
	c.pass(4000)
	waits("sealed again", 7*time.Second)
	if s := c.p.Status(); s.Overdue != 0 {
		t.Errorf("%s overdue, and it is planned", s.Overdue)
	}
	c.commit()
	waits("committed", 0)
	c.apply()
	for _, h := range []struct {
		name, topic string
		want        float64
	}{
		{"waterclock_lateness_seconds", "", 3}, {"waterclock_own_lateness_seconds", "", 3},
		{"waterclock_commit_lateness_seconds", "r", 7}, {"waterclock_own_commit_lateness_seconds", "r", 7},
	} {
		if got := histogram(t, reg, h.name, h.topic); got.GetSampleCount() != 1 || got.GetSampleSum() != h.want {
			t.Errorf("%s: %v, want one firing, %v s late", h.name, got, h.want)
		}
	}
}

func TestLatenessBuckets(t *testing.T) {
	reg := prometheus.NewRegistry()
	h := newLateness("h", "A histogram.", "topic")
	reg.MustRegister(h)
	for _, step := range [][]int64{{-5, 0, 1}, {2, 3}, {3_600_000, 3_600_001}} {
		tally := h.tally()
		for _, ms := range step {
			tally.add(ms)
		}
		h.add("t", &tally)
	}
	got := histogram(t, reg, "h", "t")
	want := map[float64]uint64{0.001: 3, 0.002: 4, 0.005: 5, 300: 5, 3600: 6}
	for _, b := range got.GetBucket() {
		if n, ok := want[b.GetUpperBound()]; ok && n != b.GetCumulativeCount() {
			t.Errorf("%d up to %v s, want %d", b.GetCumulativeCount(), b.GetUpperBound(), n)
		}
	}
	if got.GetSampleCount() != 7 || got.GetSampleSum() != 7200.002 || len(got.GetBucket()) != 17 {
		t.Errorf("%v", got)
	}
}
