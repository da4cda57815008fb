package sizing

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/emitter"
)

// At 1,000 and 5,000 timers a second and 20 ms the plan is what was measured, within a third.
func TestPlanIsTheMeasuredLaw(t *testing.T) {
	for rate, want := range map[float64]float64{1000: 0.714, 5000: 0.805} { // 714 and 161 µs a timer, brokers included
		l := Defaults()
		l.Rate, l.Instances, l.Replicas = rate, 1, 1
		if p := Make(l, Measured()); p.Cores+p.BrokerCores < want*2/3 || p.Cores+p.BrokerCores > want*4/3 {
			t.Errorf("%v a second take %.3f and %.3f cores, measured %.3f", rate, p.Cores, p.BrokerCores, want)
		}
	}
}

func TestPlanOfALargeGroup(t *testing.T) {
	l := Defaults()
	l.Rate, l.Pending = 50_000, 500e6
	p := Make(l, Measured())
	switch {
	case p.Problems != nil:
		t.Error(p.Problems)
	case p.Instances != 2 || p.Partitions != 8:
		t.Errorf("%d instances, %d partitions", p.Instances, p.Partitions)
	case p.Disk < 300e9 || p.Disk > 400e9: // all of it on the one that is left
		t.Errorf("%v bytes of disk", p.Disk)
	case p.Shares[0].Used > 1 || p.Replay < 10*time.Minute:
		t.Errorf("%+v", p)
	}
	l.Rate = 1e6
	if p := Make(l, Measured()); p.Instances < 8 || p.Problems != nil {
		t.Errorf("%+v", p)
	}
}

// More load never needs less, and what a plan says is enough is enough.
func TestPlansGrowWithTheLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := Defaults()
		l.Rate = rapid.Float64Range(1, 5e6).Draw(t, "rate")
		l.Pending = rapid.Float64Range(0, 1e10).Draw(t, "pending")
		l.Size = rapid.Float64Range(10, 1e5).Draw(t, "size")
		l.Cores = rapid.Float64Range(1, 32).Draw(t, "cores")
		l.Standbys = rapid.IntRange(0, 1).Draw(t, "standbys")
		p := Make(l, Measured())
		if p.Problems != nil && p.Instances < maxInstances {
			t.Fatalf("%+v", p)
		}
		more := l
		more.Rate, more.Pending, more.Instances, more.Partitions = 2*l.Rate, 2*l.Pending, p.Instances, p.Partitions
		q := Make(more, Measured())
		if q.Cores < p.Cores || q.BrokerCores < p.BrokerCores || q.Memory < p.Memory || q.Disk < p.Disk ||
			q.Changelog < p.Changelog || q.Replay < p.Replay {
			t.Fatalf("twice the load needs less: %+v, %+v", p, q)
		}
	})
}

func TestBadLoadsAndConstants(t *testing.T) {
	l := Load{Rate: -1, Pending: -1, Busy: 2, Instances: -1, Partitions: -1, Interval: -1, Standbys: -1}
	err := l.Validate()
	for _, name := range []string{"rate", "pending", "size", "cores", "busy", "instances", "partitions",
		"firing-interval", "replicas", "standbys", "keep", "clean"} {
		if err == nil || !strings.Contains(err.Error(), name+" ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"", "[]", `{"service_us_per_timer": 0}`, `{"service_us_per_timr": 3}`,
		`{"broker_us_per_timer": -1}`} {
		if _, err := ReadConstants([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	if c, err := ReadConstants([]byte(`{"service_us_per_timer": 20}`)); err != nil || c.ServiceTimer != 20 ||
		c.BrokerTimer != 7 {
		t.Errorf("%+v, %v", c, err)
	}
}

// If an instance uses more than its share of processors even when idle, no number of instances is enough.
func TestNoNumberOfInstancesIsEnough(t *testing.T) {
	l := Defaults()
	l.Rate, l.Cores = 10, 0.14
	if p := Make(l, Measured()); p.Problems == nil {
		t.Errorf("%d instances are said to be enough, and each uses %v of its processors", p.Instances,
			p.Shares[0].Used)
	}
}

// What a longer interval saves is what a plan with that interval does not have.
func TestLongerIntervals(t *testing.T) {
	l := Defaults()
	l.Rate, l.Instances = 50_000, 2
	now, n := Make(l, Measured()), 0
	for _, longer := range now.Longer {
		l.Interval = longer.Interval
		then := Make(l, Measured())
		close := func(name string, got, want float64) {
			if math.Abs(got-want) > 1e-9*want || got <= 0 {
				t.Errorf("%s: %s is %v, want %v", longer.Interval, name, got, want)
			}
		}
		close("transactions", longer.Transactions, now.Transactions-then.Transactions)
		close("requests", longer.Requests, RequestsOfTransaction*(now.Transactions-then.Transactions))
		close("cores", longer.Cores, now.Cores-then.Cores)
		close("cores of brokers", longer.BrokerCores, now.BrokerCores-then.BrokerCores)
		if longer.LaterAtMost != longer.Interval-20*time.Millisecond || longer.Later != longer.LaterAtMost/2 {
			t.Errorf("%+v", longer)
		}
		n++
	}
	if n != 3 || now.Longer[2].Transactions != 90 { // full transactions of 10,000 entries, 5 a second of each instance
		t.Errorf("%+v", now.Longer)
	}
	if l.Interval = time.Second; Make(l, Measured()).Longer != nil {
		t.Error("there is no longer interval")
	}
	if l.Rate, l.Interval = 1, 20*time.Millisecond; Make(l, Measured()).Longer != nil {
		t.Error("each timer has a transaction of its own, whatever the interval")
	}
	if stepEntries != emitter.MaxStepEntries || stepBytes != emitter.MaxStepBytes {
		t.Error("the limits of a transaction are others")
	}
}
