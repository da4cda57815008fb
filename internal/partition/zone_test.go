package partition

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/partition/planner"
)

// zoneData is where package time looks for rules of zones first.
var zoneData string

func TestMain(m *testing.M) {
	var err error
	if zoneData, err = os.MkdirTemp("", "zones"); err != nil {
		panic(err)
	}
	os.Setenv("ZONEINFO", zoneData)
	code := m.Run()
	os.RemoveAll(zoneData)
	os.Exit(code)
}

// A zone was known to the instance that accepted a timer, but is unknown to this one: the timer waits, and fires once
// the rules are there. Until then a cancel finds it.
func TestATimerWaitsForTheRulesOfItsZone(t *testing.T) {
	const zone = "Mars/Olympus"
	rules := append([]byte("TZif"), make([]byte, 16+6*4)...)
	rules[4+16+4*4+3], rules[4+16+5*4+3] = 1, 4 // one kind of time, of four characters
	rules = append(append(rules, make([]byte, 6)...), "UTC\x00"...)
	file := filepath.Join(zoneData, filepath.FromSlash(zone))
	know := func() {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, rules, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	know()
	c := newCore(t, newSetup(t), 1<<20, 1000)
	c.load()
	c.work()
	for id := range 2 {
		r := c.schedule(id, -10)
		r.Headers = []kgo.RecordHeader{{Key: waterclock.HeaderCron, Value: []byte("* * * * * *")},
			{Key: waterclock.HeaderZone, Value: []byte(zone)},
			{Key: waterclock.HeaderTargetTopic, Value: []byte(targetTopic)}}
	}
	c.deliver(2)
	c.work()
	c.seal(100)
	c.commit()
	c.apply()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	// New rules have read no zones, like those of another process.
	c.o.Rules = &intake.Rules{Topic: "r", Partitions: 1, Limits: intake.DefaultLimits(), Allow: c.o.Rules.Allow}
	c.acquire()
	c.load()
	c.open()
	c.now += 5000
	if n := c.fired(); n != 0 || c.parkedBy()[planner.UnknownZone] != 2 {
		t.Fatalf("%d fire, parked are %v", n, c.parkedBy())
	}
	c.cancel(1)
	c.deliver(1)
	know()
	for range 100 { // an unknown zone is looked up again every second
		c.s.keeper.parking.looked = time.Time{}
		c.ok(c.s.keeper.parking.expire())
		c.work()
		if c.seal(100); c.share != nil && len(c.share.Emissions) > 0 {
			if n := len(c.share.Emissions); n != 1 || string(c.share.Emissions[0].Record.Key) != "id0" {
				t.Errorf("%d fire, one of them cancelled", n)
			}
			return
		}
		if c.share != nil {
			c.commit()
			c.apply()
		}
		<-time.After(50 * time.Millisecond)
	}
	t.Error("it does not fire")
}
