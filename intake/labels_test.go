package intake

import (
	"slices"
	"testing"
)

// Labels are kept in order, and become a header of the emission only if they have one, instead of others of that name.
func TestValidateLabels(t *testing.T) {
	for _, c := range []struct {
		headers []string
		passed  []string
	}{
		{nil, []string{"l=old", "a=1", "l=older"}},
		{[]string{"timer-labels-header", "l"}, []string{"a=1", "l=order=17,team=x y"}},
		{[]string{"timer-labels-header", "L"}, []string{"l=old", "a=1", "l=older", "L=order=17,team=x y"}},
	} {
		rec := request([]byte("v"), append([]string{"timer-after", "1s", "timer-target-topic", "ok", "l", "old", "a",
			"1",
			"timer-labels", "team = x y, order=17", "l", "older"}, c.headers...)...)
		req, _, refused := testRules().Validate(rec, now)
		if refused != nil {
			t.Fatal(refused)
		}
		var passed []string
		for _, h := range req.Schedule.Headers {
			passed = append(passed, h.Key+"="+string(h.Value))
		}
		if req.Schedule.Labels != "order=17,team=x y" || !slices.Equal(passed, c.passed) {
			t.Errorf("%q: labels %q, headers %q", c.headers, req.Schedule.Labels, passed)
		}
	}
}
