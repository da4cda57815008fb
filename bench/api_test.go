package bench

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// All that the workload measures of the API, in small, against a real instance.
func TestAPI(t *testing.T) {
	t.Parallel()
	c := DefaultAPI()
	c.Common, c.idle, c.Puts, c.Callers = common(t), 3, 60, 4
	reports, err := Run(t.Context(), &c)
	rep := one(t, reports, err)
	for i, name := range []string{"bare PUT", "PUT", "bare PUT, idle", "PUT, idle"} {
		if len(rep.Calls) <= i {
			t.Fatalf("%d kinds of calls", len(rep.Calls))
		}
		got := rep.Calls[i]
		if got.Name != name || got.Bare != strings.HasPrefix(name, "bare") || got.PerSecond <= 0 ||
			got.Answered.P50 <= 0 || got.Answered.Max < got.Answered.P99 || got.CPU == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if len(rep.Ratios) < 1 || rep.Ratio <= 0 {
		t.Errorf("%+v", rep)
	}
	var out bytes.Buffer
	rep.WriteTable(&out)
	if !strings.Contains(out.String(), "callers") {
		t.Errorf("table:\n%s", &out)
	}
}

// An answer that is not what it must be ends the workload.
func TestDriveFails(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	c := DefaultCommon()
	_, err := drive(t.Context(), &run{Common: &c}, traffic{
		name: "GET", addr: strings.TrimPrefix(s.URL, "http://"), callers: 2, calls: 10, check: status(http.StatusOK),
		ask: func(int) request { return request{method: http.MethodGet, path: "/"} },
	})
	if err == nil || !strings.Contains(err.Error(), "GET: answered 404, not 200") {
		t.Error(err)
	}
}
