package console

import (
	"net/http"
	"testing"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/route"
)

// The page of the cluster names the settings in which instances differ, and says if that is not known.
func TestClusterNamesSettingsThatDiffer(t *testing.T) {
	f := newFake(t)
	f.answers["/v1/cluster"] = &api.Cluster{Asked: "a", Instances: []route.Instance{
		{Name: "a", SettingsDiffer: []string{}}, {Name: "b", SettingsDiffer: []string{"targets", "events"}},
		{Name: "c"},
	}}
	says(t, f.get("/cluster"), http.StatusOK, ">Started<", "<span>the same</span>",
		"differ from most:</strong> <code>targets</code>, <code>events</code>",
		`<span class="quiet">not known</span></span></td></tr>`)
}

// A list or a count that lacks partitions says which, and why.
func TestMissingPartitionsAreNamed(t *testing.T) {
	f := newFake(t)
	missing := []api.Missing{{Partition: 3, Reason: "elsewhere",
		Detail: "the owner is instance x, which has no API: start it with --api <b>"}}
	list := f.answers["/v1/topics/timers/timers"].(api.TimerList)
	list.Missing = missing
	f.answers["/v1/topics/timers/timers"] = list
	says(t, f.get("/timers"), http.StatusOK, "Not all partitions could be asked",
		"partition 3: the owner is instance x, which has no API: start it with --api &lt;b&gt;")
	f.answers["/v1/topics/timers/timers/count"] = counted(10, false, missing...)
	says(t, f.get("/"), http.StatusOK, "Not all partitions could be asked", "partition 3: the owner is instance x")
}
