package console

import (
	"net/http"
	"testing"

	"github.com/waterclock/waterclock/internal/api"
)

// A list or a count that lacks partitions says which, and why.
func TestMissingPartitionsAreNamed(t *testing.T) {
	f := newFake(t)
	missing := []api.Missing{{Partition: 3, Reason: "elsewhere", Detail: "the owner is instance x, which has no API: start it with --api <b>"}}
	list := f.answers["/v1/topics/timers/timers"].(api.TimerList)
	list.Missing = missing
	f.answers["/v1/topics/timers/timers"] = list
	says(t, f.get("/timers"), http.StatusOK, "Not all partitions could be asked", "partition 3: the owner is instance x, which has no API: start it with --api &lt;b&gt;")
	f.answers["/v1/topics/timers/timers/count"] = counted(10, false, missing...)
	says(t, f.get("/"), http.StatusOK, "Not all partitions could be asked", "partition 3: the owner is instance x")
}
