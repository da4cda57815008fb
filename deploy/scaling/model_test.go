package scaling

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	autoscaling "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
)

// perCore is how many timers one core schedules and fires in a second, in the model.
const perCore = 50_000

// A load is how many cores it takes, at a time since the beginning.
type load func(time.Duration) float64

// rise is a load that goes from 0.3 cores to 6 within so long, stays there for half an hour, and falls again, with
// waves of 5 % all the time.
func rise(within time.Duration) load {
	const begins, stays, low, high = 10*time.Minute + 20*time.Second, 30 * time.Minute, 0.3, 6.0
	return func(at time.Duration) float64 {
		part := min(1, float64(at-begins)/float64(within), float64(begins+2*within+stays-at)/float64(within))
		return (low + (high-low)*max(0, part)) * (1 + 0.05*math.Sin(at.Seconds()/37))
	}
}

// A scenario is what a run of the model follows.
type scenario struct {
	load   load
	length time.Duration
	poll   time.Duration
	ahead  bool                     // timers are scheduled long before they are due, so the load to come is known
	away   func(time.Duration) bool // Prometheus does not answer; nil: never
}

// outcome is what became of it.
type outcome struct {
	numbers []int32 // of instances, by minute
	changes []change
	waited  float64       // the most seconds that a request waited
	behind  time.Duration // when there was a backlog for the last time: more than a core's second
}

// follow has Kubernetes' controller follow a load in virtual time. An instance has one core; what is not
// served waits. When one goes, or begins to run, nothing is served for a second.
func follow(t *testing.T, o *scaledObject, s scenario) (r outcome) {
	t.Helper()
	wanted, triggers := specs(t, o), len(o.Spec.Triggers)
	if triggers != 3 || o.Spec.Triggers[0].Name != "cores" || o.Spec.Triggers[1].Name != "lag" ||
		o.Spec.Triggers[2].Name != "due" {
		t.Fatalf("the model knows cores, lag and due, not %+v", o.Spec.Triggers)
	}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		known, err := make([]float64, triggers), error(nil) // what KEDA has cached
		w := &workload{n: o.Spec.MinReplicaCount}
		ask := func(metric string) (float64, error) {
			mu.Lock()
			defer mu.Unlock()
			i, convErr := strconv.Atoi(metric[1:2])
			return known[i], errors.Join(err, convErr)
		}
		time.Sleep(time.Second / 2) // so that no two things happen at once
		stop := autoscale(context.Background(), o, wanted, w, syncPeriod, ask, func(*corev1.Event) {})
		time.Sleep(time.Second / 2)
		var used, lag []float64 // by second
		behind, n, moving := 0.0, w.replicas(), false
		pods := slices.Repeat([]time.Duration{-1}, int(n)) // when each runs
		for at := time.Duration(0); at < s.length; at += time.Second {
			running := 0
			for _, starts := range pods {
				if starts == at {
					moving = true
				}
				if starts <= at {
					running++
				}
			}
			if moving {
				running = 0
			}
			behind += s.load(at)
			done := min(behind, float64(running))
			behind -= done
			used, lag = append(used, done), append(lag, behind*perCore)
			r.waited = max(r.waited, behind/max(s.load(at), 0.01))
			if behind > 1 {
				r.behind = at
			}
			if at%s.poll == 0 {
				due := 0.0
				for ahead := at; s.ahead && ahead < at+10*time.Minute; ahead += time.Second {
					due += s.load(ahead) * perCore
				}
				mu.Lock()
				known, err = []float64{lately(used), lately(lag), due}, nil
				if s.away != nil && s.away(at) {
					err = errors.New("no answer")
				}
				mu.Unlock()
			}
			if at%time.Minute == 0 {
				r.numbers = append(r.numbers, n)
			}
			time.Sleep(time.Second)
			moving = w.replicas() < n
			n = w.replicas()
			for len(pods) < int(n) {
				pods = append(pods, at+podStart)
			}
			pods = pods[:n]
		}
		stop()
		r.changes = w.history()
	})
	return r
}

// lately is the average over two minutes.
func lately(of []float64) float64 {
	of = of[max(0, len(of)-120):]
	sum := 0.0
	for _, v := range of {
		sum += v
	}
	return sum / float64(len(of))
}

// turns is how often the number went the other way.
func turns(changes []change) (n int) {
	for i, c := range changes[min(1, len(changes)):] {
		if (c.to > c.from) != (changes[i].to > changes[i].from) {
			n++
		}
	}
	return n
}

// soonest is the shortest time between two changes.
func soonest(changes []change) time.Duration {
	least := time.Duration(math.MaxInt64)
	for i, c := range changes[min(1, len(changes)):] {
		least = min(least, c.at.Sub(changes[i].at))
	}
	return least
}

// wrong says what a run did that it should not; "" if nothing.
func (oc *outcome) wrong(o *scaledObject) string {
	least, most := slices.Min(oc.numbers), slices.Max(oc.numbers)
	switch {
	case soonest(oc.changes) < time.Minute:
		return fmt.Sprintf("two changes within %s: %v", soonest(oc.changes), oc.numbers)
	case turns(oc.changes) != 1:
		return fmt.Sprintf("the number turned %d times: %v", turns(oc.changes), oc.numbers)
	case least < o.Spec.MinReplicaCount || most > o.Spec.MaxReplicaCount || most < 7:
		return fmt.Sprintf("%d to %d instances", least, most)
	case oc.numbers[len(oc.numbers)-1] != o.Spec.MinReplicaCount:
		return fmt.Sprintf("%d instances in the end", oc.numbers[len(oc.numbers)-1])
	case oc.waited > 75:
		return fmt.Sprintf("requests waited for %.0f s", oc.waited)
	}
	return ""
}

// chart returns the ScaledObject with the chart's numbers.
func chart(t *testing.T) *scaledObject {
	t.Helper()
	return render(t, "timers", object{"prometheus": "http://prometheus", "max": 12})
}

// TestScaling has Kubernetes' controller follow loads that rise twentyfold, from at once to within 40 minutes, with the
// numbers of the chart. It changes the number of instances at most once a minute, up and then down, and nothing waits
// for more than 75 s. With Kubernetes' defaults, or without cached metrics, it does not.
func TestScaling(t *testing.T) {
	rises := []time.Duration{time.Second, time.Minute, 3 * time.Minute, 8*time.Minute + 50*time.Second,
		40 * time.Minute}
	followed := func(change func(*scaledObject, *scenario)) (wrong []string) {
		for _, within := range rises {
			o := chart(t)
			s := scenario{load: rise(within), length: 3*time.Hour + 2*within, poll: o.poll(t)}
			change(o, &s)
			r := follow(t, o, s)
			if why := r.wrong(o); why != "" {
				wrong = append(wrong, within.String()+": "+why)
			}
		}
		return wrong
	}
	if wrong := followed(func(*scaledObject, *scenario) {}); wrong != nil {
		t.Errorf("%q", wrong)
	}
	if followed(func(_ *scaledObject, s *scenario) { s.poll = syncPeriod }) == nil {
		t.Error("it is calm with metrics that are not cached, too")
	}
	if followed(func(o *scaledObject, s *scenario) {
		s.poll = syncPeriod
		o.Spec.Advanced.HorizontalPodAutoscalerConfig.Behavior = new(autoscaling.HorizontalPodAutoscalerBehavior)
	}) == nil {
		t.Error("it is calm with Kubernetes' defaults, too")
	}
}

// TestScalingAhead has it follow loads that are known ahead. A gradual one it follows as calmly as without. For a
// burst that was announced the instances are there before it is due, so it is over sooner.
func TestScalingAhead(t *testing.T) {
	for _, within := range []time.Duration{3 * time.Minute, 40 * time.Minute} {
		o := chart(t)
		r := follow(t, o, scenario{load: rise(within), length: 3*time.Hour + 2*within, poll: o.poll(t), ahead: true})
		if why := r.wrong(o); why != "" {
			t.Errorf("%s: %s", within, why)
		}
	}
	const due = time.Hour
	burst := func(at time.Duration) float64 {
		if at >= due && at < due+time.Minute {
			return 40
		}
		return 0.3
	}
	var took []time.Duration
	for _, ahead := range []bool{false, true} {
		o := chart(t)
		r := follow(t, o, scenario{load: burst, length: 3 * time.Hour, poll: o.poll(t), ahead: ahead})
		if before := r.numbers[due/time.Minute-1]; ahead != (before >= 6) {
			t.Errorf("ahead %v: %d instances before the burst", ahead, before)
		}
		if last := r.numbers[len(r.numbers)-1]; last != o.Spec.MinReplicaCount {
			t.Errorf("ahead %v: %d instances in the end", ahead, last)
		}
		took = append(took, r.behind-due)
	}
	if took[1] > took[0]*8/10 {
		t.Errorf("the burst takes %v, not known ahead and known", took)
	}
}

// TestPrometheusIsAway has Prometheus not answer for 20 minutes, while the load is high and then falls. The number
// stays as it is: it is not taken for 0. Then it follows the load again.
func TestPrometheusIsAway(t *testing.T) {
	const from, to = 25 * time.Minute, 55 * time.Minute
	o := chart(t)
	r := follow(t, o, scenario{load: rise(3 * time.Minute), length: 3 * time.Hour, poll: o.poll(t),
		away: func(at time.Duration) bool { return at >= from && at < to }})
	if why := r.wrong(o); why != "" {
		t.Error(why)
	}
	for minute := from / time.Minute; minute < to/time.Minute; minute++ {
		if n := r.numbers[minute]; n != r.numbers[from/time.Minute] {
			t.Errorf("%d instances after %d minutes, %d before", n, minute, r.numbers[from/time.Minute])
		}
	}
}
