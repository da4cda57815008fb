package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/bench/sizing"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
)

// The constants of a machine are written beside those that are built in, to a file that waterclock plan reads.
func TestPlan(t *testing.T) {
	runs.NeedSlow(t)
	t.Parallel()
	c := DefaultPlan()
	c.Common, c.Timers, c.Pending, c.Out = common(t), 3000, 3000, filepath.Join(t.TempDir(), "constants.json")
	c.Rates, c.Duration, c.Least, c.Spread = []float64{200, 2000}, 2*time.Second, 300*time.Millisecond,
		200*time.Millisecond
	reports, err := Run(t.Context(), &c)
	rep := one(t, reports, err)
	data, err := os.ReadFile(c.Out)
	if err != nil {
		t.Fatal(err)
	}
	got, err := sizing.ReadConstants(data)
	if err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	if got.ServiceTimer == sizing.Measured().ServiceTimer || got.Partition <= 0 || got.DiskPerByte <= 0 ||
		got.ChangelogPerByte <= 0.5 || got.ChangelogPerByte > 3 {
		t.Errorf("%+v", got)
	}
	// Nothing is known of a simulated broker, so its figures are the measured ones.
	if is := sizing.Measured(); got.BrokerTimer != is.BrokerTimer || got.FilterBytes != is.FilterBytes {
		t.Errorf("%+v", got)
	}
	var out bytes.Buffer
	rep.WriteTable(&out)
	table := strings.Join(strings.Fields(out.String()), " ") // columns are as wide as what is in them
	for _, want := range []string{"service_us_per_timer ", "measured built in", "filter_bytes_per_pending_timer "} {
		if !strings.Contains(table, want) {
			t.Errorf("table lacks %q:\n%s", want, &out)
		}
	}
}

// One rate, or one interval, does not tell costs apart; three replicas cost more than the constants say.
func TestPlanRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*PlanConfig){
		"rates, intervals": func(c *PlanConfig) { c.Rates = c.Rates[:1] },
		"intervals":        func(c *PlanConfig) { c.Intervals = []time.Duration{0} },
		"local-brokers":    func(c *PlanConfig) { c.Brokers = 3 },
		"timers":           func(c *PlanConfig) { c.Pending = 0 },
	} {
		c := DefaultPlan()
		if spoil(&c); c.check() == nil || !strings.Contains(c.check().Error(), name) {
			t.Errorf("%s: %v", name, c.check())
		}
	}
}
