package crash

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/kafkatest/caller"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/test/rig"
)

// TestKilledInABulkMove kills an instance while a job moves timers by an hour: the one that runs the job, or another.
// By what the job says, or by the position that it had, each timer was moved once or not at all. Another job moves the
// rest.
func TestKilledInABulkMove(t *testing.T) {
	t.Parallel()
	n := 10_000
	if runs.Slow() {
		n = 200_000
	}
	c := kafkatest.Start(t, 1, kafkatest.ApacheDefaults())
	t.Run("the instance of the job", func(t *testing.T) { killedInABulkMove(t, c, n, true) })
	t.Run("another instance", func(t *testing.T) { killedInABulkMove(t, c, n, false) })
}

func killedInABulkMove(t *testing.T, c *kafkatest.Cluster, n int, own bool) {
	const partitions, by = 8, time.Hour
	s := rig.NewSetup(t, c, partitions, 1)
	key := rig.File(t, "key", strings.Repeat("k", 40))
	start := func() (*rig.Process, *caller.Caller) {
		addr := rig.FreeAddr(t)
		return s.Twin().Start("--api", addr, "--api-key-file", key), caller.New(t, "http://"+addr)
	}
	runner, api := start()
	other, rest := start()
	s.Shared(runner, other)
	first := time.Now().Add(never).Truncate(time.Millisecond)
	s.Send(s.Timers("t-", n, first, 0)...)
	timers := "/v1/topics/" + s.Requests + "/timers"
	await.Until(t, rig.Patience, "all are pending", func() bool {
		return api.Get(timers + "/count").Body["count"] == float64(n)
	})

	started := api.Call("POST", fmt.Sprintf("%s/move?all=true&by=%s&rate=%d", timers, by, max(1000, n/20)), "").
		Is(http.StatusAccepted, "")
	job, position := started.Header.Get("Location"), fmt.Sprint(started.Object("job")["position"])
	await.Until(t, rig.Patience, "a fifth is moved", func() bool {
		moved, _ := api.Get(job).Body["changed"].(float64)
		return moved > float64(n)/5
	})
	killed, left := runner, other
	if !own {
		killed, left, rest = other, runner, api
	}
	killed.Kill()
	await.Until(t, rig.Patience, "the other has all partitions", func() bool { return rig.Serving(partitions, left) })

	failed := math.Inf(1)
	if own {
		rest.Get(job).Is(http.StatusNotFound, "not-found")
	} else {
		end := jobEnded(t, rest, job)
		failed = end["failed"].(float64)
		if end["state"] != "done" || end["changed"].(float64)+end["spared"].(float64)+failed != float64(n) ||
			end["seen"] != float64(n) {
			t.Errorf("job %v", end)
		}
		t.Logf("job %v", end)
	}
	moved := bulkMoved(t, rest, timers, n, first, by, position)
	t.Logf("%d of %d moved", moved, n)
	if own && moved == n {
		t.Error("the job was over when its instance was killed: nothing is shown")
	}
	if float64(n-moved) > failed {
		t.Errorf("%d are not moved, and the job says that %g have failed", n-moved, failed)
	}

	again := rest.Call("POST", fmt.Sprintf("%s/move?all=true&by=%s&unchanged-since=%s", timers, by, position), "").
		Is(http.StatusAccepted, "")
	end := jobEnded(t, rest, again.Header.Get("Location"))
	seen := end["changed"].(float64) + end["spared"].(float64)
	if end["state"] != "done" || seen != float64(n) || end["failed"] != 0.0 {
		t.Errorf("the rest: %v", end)
	}
	if got := bulkMoved(t, rest, timers, n, first, by, position); got != n {
		t.Errorf("%d of %d are moved", got, n)
	}
	s.NothingDead()
}

// jobEnded waits for the end of a job.
func jobEnded(t *testing.T, api *caller.Caller, job string) (shown map[string]any) {
	t.Helper()
	await.Until(t, 5*rig.Patience, "the job ends", func() bool {
		shown = api.Get(job).Is(http.StatusOK, "").Body
		return shown["state"] != "running"
	})
	return shown
}

// bulkMoved checks that each of n timers is due at a time or is moved by so much, and that its source says which: it is
// at or behind the job's position. It returns how many are moved.
func bulkMoved(t *testing.T, api *caller.Caller, timers string, n int, at time.Time, by time.Duration,
	position string) (moved int) {
	t.Helper()
	ends := strings.Split(strings.TrimPrefix(position, "0:"), ".")
	seen := make(map[any]bool, n)
	api.Pages(timers+"?order=id&limit=1000", func(page caller.Answer) {
		for _, item := range page.Items("timers") {
			seen[item["id"]] = true
			due, err := time.Parse(time.RFC3339Nano, fmt.Sprint(item["due"]))
			source := strings.Split(fmt.Sprint(item["source"]), "/")
			partition, wrong := strconv.Atoi(source[1])
			if err != nil || wrong != nil {
				t.Fatalf("%v: %v, %v", item, err, wrong)
			}
			offset, _ := strconv.ParseInt(source[2], 10, 64)
			end, _ := strconv.ParseInt(ends[partition], 10, 64)
			switch there := due.Equal(at.Add(by)); {
			case there != (offset >= end) || !there && !due.Equal(at):
				t.Errorf("%v is due %s, source %v; the job began at %d", item["id"], due, item["source"], end)
			case there:
				moved++
			}
		}
	})
	if len(seen) != n {
		t.Errorf("%d are pending, want %d", len(seen), n)
	}
	return moved
}
