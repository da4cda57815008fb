package dev

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// What is pending is asked for and steered by the commands that call the HTTP API, as
// somebody would who has dev running.
func TestCommandsOfTheAPI(t *testing.T) {
	t.Parallel()
	drivesProcesses(t)
	broker := rig.FreeAddr(t)
	p := rig.Start(t, "dev", "--listen", broker, "--data-dir", t.TempDir(), "--demo=false")
	var api []string
	await.Until(t, patience, "the API", func() bool {
		api = regexp.MustCompile(`HTTP API on (http://127\.0\.0\.1:\d+),`).FindStringSubmatch(p.Output())
		return api != nil && strings.Contains(p.Output(), "Ctrl-C stops.")
	})
	call := func(want int, args ...string) string {
		t.Helper()
		cmd := exec.Command(rig.Binary(t), args...)
		cmd.Env = environ("WATERCLOCK_BROKERS="+broker, "WATERCLOCK_URL="+api[1])
		code, out := run(t, cmd)
		if code != want {
			t.Fatalf("waterclock %s: exit %d, want %d:\n%s", strings.Join(args, " "), code, want, out)
		}
		return out
	}
	says := func(out, want string) {
		t.Helper()
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("does not say %s:\n%s", want, out)
		}
	}
	for _, id := range []string{"c17/a", "c17/b", "c17/c", "other"} {
		call(0, "schedule", "--id", id, "--in", "1h", "--to", "orders", "--value", "v of "+id)
	}
	await.Until(t, patience, "all are pending", func() bool { return strings.TrimSpace(call(0, "count")) == "4" })

	says(call(0, "count", "--prefix", "c17/", "--due-before", "2h"), `^3\n$`)
	says(call(0, "count", "--due-after", "2h"), `^0\n$`)
	says(call(0, "get", "--id", "c17/a"), `(?s)ID +c17/a\n.*state +pending\n.*payload +v of c17/a\n`)
	says(call(1, "get", "none"), `not-found: no timer of ID "none" is pending`)
	says(call(0, "list", "--limit", "3", "--order", "id"),
		`(?s)c17/a +pending .*c17/b .*c17/c .*there may be more: --limit 30`)
	says(call(0, "list", "--json", "--prefix", "oth"), `^\{"id":"other",.*\}\n$`)
	says(call(0, "status"), `(?s)timers/0 +live .*\n4 timers are pending\.`)

	says(call(0, "pause", "--prefix", "c17/", "--yes"), `pause done: 3 changed, 0 spared, 0 failed, of 3 seen`)
	says(call(0, "resume", "--id", "c17/a"), `resume of c17/a written to timers/`)
	await.Until(t, patience, "one is resumed",
		func() bool { return strings.TrimSpace(call(0, "count", "--state", "paused")) == "2" })
	says(call(0, "cancel", "--state", "paused", "--dry-run"), `^cancel would affect 2 pending timers\n$`)
	says(call(0, "cancel", "--state", "paused", "--yes"), `cancel done: 2 changed`)
	says(call(0, "cancel", "--dry-run"), `^cancel would affect 2 pending timers`)
	says(call(0, "cancel", "--all", "--yes"), `cancel done: 2 changed`)
	says(call(0, "count"), `^0\n$`)

	for want, args := range map[string][]string{
		`--id is for one timer, and --prefix and the other filters are for many`: {"cancel", "--id",
			"a", "--prefix", "b"},
		`cancel with a filter or --all changes many at once, and there is no terminal to ask on`: {"cancel", "--all"},
		`--all and a filter exclude each other`: {"cancel", "--all",
			"--prefix", "b"},
		`--due-before is "soon", needs RFC 3339`: {"list",
			"--due-before", "soon"},
		`--url is "ftp://x", needs http://HOST:PORT`: {"list",
			"--url", "ftp://x"},
		`waterclock get needs the ID of a timer, as in waterclock get a1`: {"get"},
		`must be set together`: {"count", "--user", "me"},
		`no filter chooses timers: use --all if you mean all timers of topic timers`: {"pause", "--all=false"},
	} {
		says(call(2, args...), want)
	}
	says(call(1, "count", "--url", "http://"+rig.FreeAddr(t)),
		`no HTTP API at http://127\.0\.0\.1:\d+: .*--url or WATERCLOCK_URL names it`)
	p.Term()
	if code := p.Exit(patience); code != 0 {
		t.Errorf("SIGTERM: exit %d", code)
	}
}
