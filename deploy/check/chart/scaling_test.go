package chart

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	autoscaling "k8s.io/api/autoscaling/v2"
	"sigs.k8s.io/yaml"
)

// What a Kubernetes controller manager does, unless it is told otherwise.
const (
	syncPeriod = 15 * time.Second
	tolerance  = 0.1
)

// scaledObject is what this test reads of the chart's ScaledObject.
type scaledObject struct {
	Kind string
	Spec struct {
		MinReplicaCount, MaxReplicaCount int32
		PollingInterval                  int64
		Advanced                         struct {
			HorizontalPodAutoscalerConfig struct {
				Behavior autoscaling.HorizontalPodAutoscalerBehavior
			}
		}
		Triggers []struct {
			Metadata struct{ Threshold string }
		}
	}
}

// hpa is the autoscaler's algorithm: desired numbers by metric, stabilization, policies, as
// k8s.io/kubernetes/pkg/controller/podautoscaler has it. That package cannot be imported.
type hpa struct {
	min, max int32
	poll     time.Duration // how often KEDA asks for new totals
	up, down autoscaling.HPAScalingRules
	ahead    bool // timers are scheduled long before they are due, so the load to come is known
	now      time.Duration
	said     []change // recommendations
	changes  []change
}

// change is a number of instances, or by how much it changed.
type change struct {
	at time.Duration
	n  int32
}

func window(r autoscaling.HPAScalingRules) time.Duration {
	return time.Duration(*r.StabilizationWindowSeconds) * time.Second
}

// next returns the number of instances after one period, by totals of metrics and their targets for one.
func (h *hpa) next(current int32, totals, targets []float64) int32 {
	h.now += syncPeriod
	wanted := int32(0)
	for i, total := range totals {
		by := current
		if ratio := total / (targets[i] * float64(current)); math.Abs(ratio-1) > tolerance {
			by = int32(math.Ceil(total / targets[i]))
		}
		wanted = max(wanted, by)
	}
	h.said = append(h.said, change{h.now, min(max(wanted, h.min), h.max)})
	up, down := int32(math.MaxInt32), int32(0)
	for _, s := range h.said {
		if s.at > h.now-window(h.up) {
			up = min(up, s.n)
		}
		if s.at > h.now-window(h.down) {
			down = max(down, s.n)
		}
	}
	last := h.said[len(h.said)-1].n
	up, down = min(up, last), max(down, last)
	n := current
	switch {
	case current < up:
		n = min(up, h.limit(current, h.up, 1))
	case current > down:
		n = max(down, h.limit(current, h.down, -1))
	}
	if n != current {
		h.changes = append(h.changes, change{h.now, n - current})
	}
	return n
}

// limit is how far the policies let the number go up (sign 1) or down (-1).
func (h *hpa) limit(current int32, rules autoscaling.HPAScalingRules, sign int32) int32 {
	limit, first := current, true
	for _, p := range rules.Policies {
		begun := current
		for _, c := range h.changes {
			if c.at > h.now-time.Duration(p.PeriodSeconds)*time.Second && c.n*sign > 0 {
				begun -= c.n
			}
		}
		to := begun + sign*p.Value
		if p.Type == autoscaling.PercentScalingPolicy {
			to = int32(math.Ceil(float64(begun) * (1 + float64(sign*p.Value)/100)))
		}
		further := (to-limit)*sign > 0
		if first || further == (rules.SelectPolicy == nil || *rules.SelectPolicy == autoscaling.MaxChangePolicySelect) {
			limit, first = to, false
		}
	}
	if (limit-current)*sign < 0 {
		return current
	}
	return limit
}

// run has the autoscaler follow a load, in cores. It returns how many instances there were in each
// period, and the most seconds that a request waited. An instance has one core; what is not
// served waits; 50,000 timers are a core's second. A change costs each moved partition a second.
func (h *hpa) run(load func(time.Duration) float64, length time.Duration, targets []float64) (numbers []int32, waited float64) {
	const perCore, average = 50_000.0, 120
	n, behind := h.min, 0.0 // cores' seconds
	var used, lag []float64 // by second
	mean := func(of []float64) float64 {
		of = of[max(0, len(of)-average):]
		sum := 0.0
		for _, v := range of {
			sum += v
		}
		return sum / float64(len(of))
	}
	moving, totals := 0, make([]float64, len(targets))
	for at := time.Duration(0); at < length; at += time.Second {
		capacity := float64(n)
		if moving > 0 {
			capacity, moving = 0, moving-1
		}
		behind += load(at)
		done := min(behind, capacity)
		behind -= done
		used, lag = append(used, done), append(lag, behind*perCore)
		waited = max(waited, behind/max(load(at), 0.01))
		if at%syncPeriod == 0 && at > 0 {
			if at%h.poll == 0 {
				totals = []float64{mean(used), mean(lag), 0}
				for s := at; h.ahead && s < at+10*time.Minute; s += time.Second {
					totals[2] += load(s) * perCore
				}
			}
			after := h.next(n, totals, targets)
			if after != n {
				n, moving = after, 1
			}
			numbers = append(numbers, n)
		}
	}
	return numbers, waited
}

func chartHPA(t *testing.T) (*hpa, []float64) {
	t.Helper()
	for _, doc := range objects(t, releases()[1]) {
		var o scaledObject
		if !strings.Contains(doc, "\nkind: ScaledObject\n") {
			continue
		}
		if strings.Count(doc, "useCachedMetrics: true") != 3 {
			t.Fatal("a trigger's metrics are not cached: they change more often than pollingInterval says")
		}
		data, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, &o); err != nil {
			t.Fatal(err)
		}
		var targets []float64
		for _, trigger := range o.Spec.Triggers {
			v, err := strconv.ParseFloat(trigger.Metadata.Threshold, 64)
			if err != nil {
				t.Fatal(err)
			}
			targets = append(targets, v)
		}
		b := o.Spec.Advanced.HorizontalPodAutoscalerConfig.Behavior
		return &hpa{min: o.Spec.MinReplicaCount, max: o.Spec.MaxReplicaCount, poll: time.Duration(o.Spec.PollingInterval) * time.Second, up: *b.ScaleUp, down: *b.ScaleDown}, targets
	}
	t.Fatal("no ScaledObject")
	return nil, nil
}

// rise is a load, in cores, that goes from 0.3 to 6 within so long, stays there for half an hour, and
// falls again, with waves of 5 % all the time.
func rise(within time.Duration) func(time.Duration) float64 {
	const begins, stays, low, high = 10*time.Minute + 20*time.Second, 30 * time.Minute, 0.3, 6.0
	return func(at time.Duration) float64 {
		part := min(1, float64(at-begins)/float64(within), float64(begins+2*within+stays-at)/float64(within))
		return (low + (high-low)*max(0, part)) * (1 + 0.05*math.Sin(at.Seconds()/37))
	}
}

// calm says what a run did that it should not; "" if nothing.
func (h *hpa) calm(numbers []int32, waited float64) string {
	for i, c := range h.changes[1:] {
		if c.at-h.changes[i].at < time.Minute {
			return fmt.Sprintf("two changes within a minute, at %s", c.at)
		}
	}
	turns := 0
	for i, c := range h.changes[1:] {
		if (c.n > 0) != (h.changes[i].n > 0) {
			turns++
		}
	}
	switch {
	case turns != 1:
		return fmt.Sprintf("the number turned %d times: %v", turns, numbers)
	case slices.Min(numbers) < h.min || slices.Max(numbers) > h.max || slices.Max(numbers) < 7:
		return fmt.Sprintf("%d to %d instances", slices.Min(numbers), slices.Max(numbers))
	case numbers[len(numbers)-1] != h.min:
		return fmt.Sprintf("%d instances in the end", numbers[len(numbers)-1])
	case waited > 60:
		return fmt.Sprintf("requests waited for %.0f s", waited)
	}
	return ""
}

// TestScaling has the autoscaler's algorithm follow loads that rise twentyfold, from at once to within
// 40 minutes, with the numbers of the chart's ScaledObject. It changes the number of instances at most
// once a minute, up and then down, and nothing waits for more than a minute. With Kubernetes' defaults,
// or without cached metrics, it does not.
func TestScaling(t *testing.T) {
	rises := []time.Duration{time.Second, time.Minute, 3 * time.Minute, 8*time.Minute + 50*time.Second, 40 * time.Minute}
	followed := func(change func(*hpa)) (wrong []string) {
		for _, within := range rises {
			h, targets := chartHPA(t)
			change(h)
			numbers, waited := h.run(rise(within), 3*time.Hour+2*within, targets)
			if why := h.calm(numbers, waited); why != "" {
				wrong = append(wrong, within.String()+": "+why)
			}
		}
		return wrong
	}
	if wrong := followed(func(*hpa) {}); wrong != nil {
		t.Errorf("%q", wrong)
	}
	if followed(func(h *hpa) { h.poll = syncPeriod }) == nil {
		t.Error("it is calm with metrics that are not cached, too")
	}
	if followed(func(h *hpa) {
		percent := autoscaling.HPAScalingPolicy{Type: autoscaling.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}
		h.poll = syncPeriod
		h.up.Policies = []autoscaling.HPAScalingPolicy{percent, {Type: autoscaling.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}}
		h.down.StabilizationWindowSeconds, h.down.Policies, h.down.SelectPolicy = new(int32), []autoscaling.HPAScalingPolicy{percent}, nil
		*h.down.StabilizationWindowSeconds = 300
	}) == nil {
		t.Error("it is calm with Kubernetes' defaults, too")
	}
}

// TestScalingAhead has the autoscaler's algorithm follow loads that are known ahead. A gradual one it follows as calmly
// as without. For a burst that was announced the instances are there before it is due, so it is over sooner.
func TestScalingAhead(t *testing.T) {
	for _, within := range []time.Duration{3 * time.Minute, 40 * time.Minute} {
		h, targets := chartHPA(t)
		h.ahead = true
		numbers, waited := h.run(rise(within), 3*time.Hour+2*within, targets)
		if why := h.calm(numbers, waited); why != "" {
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
	var waits []float64
	for _, ahead := range []bool{false, true} {
		h, targets := chartHPA(t)
		h.ahead = ahead
		numbers, _ := h.run(burst, 3*time.Hour, targets)
		behind := 0.0 // the backlog's end, by what the instances could do
		for i := int(due / syncPeriod); i < len(numbers); i++ {
			for s := range int(syncPeriod / time.Second) {
				behind += burst(time.Duration(i)*syncPeriod+time.Duration(s)*time.Second) - float64(numbers[i])
			}
			if behind = max(0, behind); behind == 0 {
				waits = append(waits, (time.Duration(i)*syncPeriod - due).Seconds())
				break
			}
		}
		if before := numbers[int(due/syncPeriod)-2]; ahead != (before >= 6) {
			t.Errorf("ahead %v: %d instances before the burst", ahead, before)
		}
		if last := numbers[len(numbers)-1]; last != h.min {
			t.Errorf("ahead %v: %d instances in the end", ahead, last)
		}
	}
	if len(waits) != 2 || waits[1] > waits[0]*0.8 {
		t.Errorf("the burst takes %v s, not known ahead and known", waits)
	}
}
