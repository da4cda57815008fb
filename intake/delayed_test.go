package intake

import (
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
)

func delayed(headers ...string) *kgo.Record {
	r := &kgo.Record{Topic: "orders.retry", Key: []byte("k"), Value: []byte("v")}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return r
}

func delayedRules() *Rules {
	return &Rules{Topic: "orders.retry", DefaultTarget: "orders",
		Allow: func(topic string) bool { return topic == "orders" || topic == "mail" },
		Never: func(topic string) string {
			if topic == "timers" {
				return "it is a request topic"
			}
			return ""
		}}
}

func TestValidateDelayed(t *testing.T) {
	for name, tc := range map[string]struct {
		headers []string
		target  string
		attempt int64
		passed  []string
	}{
		"nothing said": {nil, "orders", 1, nil},
		"others are passed on": {[]string{"a", "1", "a", "2", "Waterclock-x", "3"}, "orders", 1,
			[]string{"a", "1", "a", "2", "Waterclock-x", "3"}},
		"a target": {[]string{"a", "1", "timer-target-topic", "mail", "b", "2"}, "mail", 1,
			[]string{"a", "1", "b", "2"}},
		"it came through one":  {[]string{"waterclock-attempt", "1"}, "orders", 2, nil},
		"it came through none": {[]string{"waterclock-attempt", "0"}, "orders", 1, nil},
		"it came through most": {[]string{"waterclock-attempt", "2147483646"}, "orders", 2147483647, nil},
		"the service's own go": {[]string{"waterclock-due", "x", "waterclock-attempt", "3", "waterclock-reason", "y",
			"c", ""}, "orders", 4, []string{"c", ""}},
		"own headers given twice": {[]string{"waterclock-due", "x", "waterclock-due", "y"}, "orders", 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			rec := delayed(tc.headers...)
			before := delayed(tc.headers...)
			d, refusal := delayedRules().ValidateDelayed(rec)
			if refusal != nil {
				t.Fatalf("refused: %+v", refusal)
			}
			passed := delayed(tc.passed...).Headers
			if d.Target != tc.target || d.Attempt != tc.attempt || len(d.Headers) != len(passed) || len(passed) > 0 &&
				!reflect.DeepEqual(d.Headers, passed) {
				t.Errorf("got %+v", d)
			}
			if !reflect.DeepEqual(rec, before) {
				t.Errorf("the record was changed: %+v", rec)
			}
		})
	}
}

func TestValidateDelayedRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		headers []string
		want    waterclock.Reason
		says    string
	}{
		"attempt of no number": {[]string{"waterclock-attempt", "two"}, waterclock.ReasonBadAttempt, `"two"`},
		"attempt empty":        {[]string{"waterclock-attempt", ""}, waterclock.ReasonBadAttempt, `""`},
		"attempt below zero":   {[]string{"waterclock-attempt", "-1"}, waterclock.ReasonBadAttempt, `"-1"`},
		"attempt with a sign":  {[]string{"waterclock-attempt", "+1"}, waterclock.ReasonBadAttempt, `"+1"`},
		"attempt too large": {[]string{"waterclock-attempt", "2147483647"}, waterclock.ReasonBadAttempt,
			`"2147483647"`},
		"attempt far too large": {[]string{"waterclock-attempt", strings.Repeat("9", 1000)},
			waterclock.ReasonBadAttempt, "1000 bytes"},
		"attempt twice": {[]string{"waterclock-attempt", "1", "waterclock-attempt", "1"},
			waterclock.ReasonDuplicateHeader, "waterclock-attempt"},
		"target twice": {[]string{"timer-target-topic", "mail", "timer-target-topic", "mail"},
			waterclock.ReasonDuplicateHeader, "timer-target-topic"},
		"target not allowed": {[]string{"timer-target-topic", "others"}, waterclock.ReasonTargetNotAllowed,
			"others"},
		"target never": {[]string{"timer-target-topic", "timers"}, waterclock.ReasonTargetNotAllowed,
			"it is a request topic"},
		"target of Kafka": {[]string{"timer-target-topic", "__consumer_offsets"},
			waterclock.ReasonTargetNotAllowed, "Kafka's own"},
		"target no topic": {[]string{"timer-target-topic", "a/b"}, waterclock.ReasonBadTarget, `"a/b"`},
		"target not text": {[]string{"timer-target-topic", "\xff"}, waterclock.ReasonNotUTF8,
			"timer-target-topic"},
		"a due time": {[]string{"timer-after", "5m"}, waterclock.ReasonNoEffect,
			"timer-after has no effect"},
		"a target key": {[]string{"timer-target-key", "k"}, waterclock.ReasonNoEffect, "timer-target-key"},
		"a trigger": {[]string{"timer-trigger", "true"}, waterclock.ReasonNoEffect,
			"timer-trigger has no effect"},
		"a pause":      {[]string{"timer-pause", "true"}, waterclock.ReasonNoEffect, "timer-pause"},
		"a resume":     {[]string{"timer-resume", "true"}, waterclock.ReasonNoEffect, "timer-resume"},
		"a condition":  {[]string{"timer-if", "absent"}, waterclock.ReasonNoEffect, "timer-if"},
		"a recurrence": {[]string{"timer-every", "5m"}, waterclock.ReasonNoEffect, "timer-every"},
		"misspelt": {[]string{"timer-target-topics", "mail"}, waterclock.ReasonUnknownHeader,
			"timer-target-topics"},
		"wrong case": {[]string{"Timer-Target-Topic", "mail"}, waterclock.ReasonHeaderCase,
			"Timer-Target-Topic"},
	} {
		t.Run(name, func(t *testing.T) {
			r := delayedRules()
			for range 2 { // the second time, the target's verdict is remembered
				_, refusal := r.ValidateDelayed(delayed(tc.headers...))
				if refusal == nil || refusal.Reason != string(tc.want) || !strings.Contains(refusal.Detail, tc.says) {
					t.Errorf("got %+v, want %s with %q", refusal, tc.want, tc.says)
				}
			}
		})
	}
	r := delayedRules()
	r.DefaultTarget = ""
	if _, refusal := r.ValidateDelayed(delayed("a", "b")); refusal == nil ||
		refusal.Reason != string(waterclock.ReasonNoTarget) {
		t.Errorf("without a target: %+v", refusal)
	}
}

// Other rules hold for fixed-delay topics too, from the next record on.
func TestRulesOfFixedDelayTopicsAreReplaced(t *testing.T) {
	rules := delayedRules()
	if _, refusal := rules.ValidateDelayed(delayed()); refusal != nil {
		t.Fatalf("refused: %+v", refusal)
	}
	strict := delayedRules()
	strict.Allow = func(string) bool { return false }
	rules.Replace(strict)
	if _, refusal := rules.ValidateDelayed(delayed()); refusal == nil ||
		refusal.Reason != string(waterclock.ReasonTargetNotAllowed) {
		t.Errorf("by other rules: %+v", refusal)
	}
}
