package brokers

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// What is wrong with a command line, a configuration file or a variable, beside the values of settings (and beside what
// TestLoadErrors of internal/node/config has): code 2 and a line that names it. What is wrong with a place that a good
// command line names: code 1.
func TestWrongUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// yaml writes a file and returns what names it.
	yaml := func(name, text string) string { return "--config=" + write(t, filepath.Join(dir, name), text) }
	serve := "serve --brokers 127.0.0.1:1 --requests timers --targets * --http= "
	client := " --brokers 127.0.0.1:1 "
	for _, v := range []struct {
		name string
		args string // by blanks
		env  []string
		code int
		want []string
	}{
		{"everything missing", "serve", nil, 2, []string{"brokers needs at least one host:port",
			"requests needs at least one request topic", "targets needs at least one glob"}},
		{"unknown command", "serv", nil, 2, []string{`no command "serv"`, "did you mean", "serve", "--help"}},
		{"unknown flag", serve + "--brokerz x:1", nil, 2, []string{"unknown flag: --brokerz", "serve --help"}},
		{"unknown short flag", serve + "-x", nil, 2, []string{"unknown shorthand flag: 'x'", "serve --help"}},
		{"argument", serve + "now", nil, 2, []string{`takes flags only, not "now"`, "serve --help"}},
		{"flag without a value", serve + "--data-dir", nil, 2,
			[]string{"flag needs an argument: --data-dir", "serve --help"}},
		{"setting of another command", serve + "--listen 127.0.0.1:0", nil, 2, []string{"unknown flag: --listen"}},
		{"file missing", serve + "--config=" + dir + "/none", nil, 2,
			[]string{"config is", dir + "/none", "a readable file"}},
		{"file missing, by variable", serve, []string{"WATERCLOCK_CONFIG=" + dir + "/none"}, 2,
			[]string{"config is", dir + "/none", "a readable file"}},
		{"file is a directory", serve + "--config=" + dir, nil, 2, []string{"config is", dir, "a readable file"}},
		{"all at once", serve + yaml("all", "lanes: many\nlane: 1\n"), []string{"WATERCLOCK_LANE=1"}, 2,
			[]string{"lanes is", "lane needs to be a known key", "WATERCLOCK_LANE needs"}},
		{"bytes", serve + yaml("bytes", "\x00\x01\xff"), nil, 2, []string{"/bytes"}},
		{"two documents", serve + yaml("documents", "---\nlanes: 1\n---\nlanes: many\n"), nil, 2,
			[]string{"config is", "/documents", "a single YAML document"}},
		{"schedule without a time", "schedule --to a --value x" + client, nil, 2, []string{"--in", "--at"}},
		{"schedule with two times", "schedule --in 1s --at 2030-01-01T00:00:00Z --to a --value x" + client, nil, 2,
			[]string{"--in", "--at"}},
		{"schedule for a bad time", "schedule --at tomorrow --to a --value x" + client, nil, 2,
			[]string{"--at", "tomorrow", "a time such as"}},
		{"schedule after a bad duration", "schedule --in soon --to a --value x" + client, nil, 2,
			[]string{"--in", "soon", "duration"}},
		{"schedule with two values", "schedule --in 1s --to a --value x --null-value" + client, nil, 2,
			[]string{"--value", "--null-value"}},
		{"schedule a file that is missing", "schedule --in 1s --to a --value-file " + dir + "/none" + client, nil, 2,
			[]string{"--value-file", dir + "/none", "no such file"}},
		{"schedule for a bad partition", "schedule --in 1s --to a --value x --partition first" + client, nil, 2,
			[]string{"--partition", "first", "a whole number"}},
		{"schedule with a bad header", "schedule --in 1s --to a --value x --header x" + client, nil, 2,
			[]string{"--header", "NAME=VALUE"}},
		{"schedule with an ID that is too long", "schedule --in 1s --to a --value x --id " + strings.Repeat("i", 513) +
			client, nil, 2, []string{"--id", "513 bytes", "needs 1 to 512"}},
		{"schedule, nobody there", "schedule --in 1s --to a --value x" + client, nil, 1,
			[]string{"no broker can be reached at 127.0.0.1:1"}},
		{"cancel without an ID", "cancel" + client, nil, 2,
			[]string{"waterclock cancel needs the ID of a timer, as in waterclock cancel a1"}},
		{"cancel, nobody there", "cancel --id a" + client, nil, 1, []string{"no broker can be reached at 127.0.0.1:1"}},
		{"topics without a topic", "topics" + client, nil, 2, []string{"requests needs at least one request topic"}},
		{"topics, nobody there", "topics --requests timers" + client, nil, 1,
			[]string{"no broker can be reached at 127.0.0.1:1"}},
		{"acls without a target", "topics acls --requests timers" + client, nil, 2,
			[]string{"targets needs at least one glob"}},
		{"dev with TLS", "dev --http= --data-dir " + dir + "/dev", []string{"WATERCLOCK_TLS=true"}, 2,
			[]string{"tls is", "the embedded broker speaks plain text"}},
		{"dev at a bad address", "dev --http= --listen 9092 --data-dir " + dir + "/dev", nil, 2,
			[]string{"listen is", "9092", "host:port"}},
		{"dev, a demo or not", "dev --http= --demo=perhaps", nil, 2, []string{"--demo", "perhaps", "true or false"}},
		{"store of nothing", "store verify --data-dir " + dir + "/none", nil, 1,
			[]string{dir + "/none", "there is no store"}},
		{"dump of nothing", "store dump --data-dir " + dir + "/none", nil, 1,
			[]string{dir + "/none", "there is no store"}},
		{"web configuration does not exist", serve + "--http=127.0.0.1:0 --http-web-config=" + dir + "/none", nil, 2,
			[]string{"http-web-config is", dir + "/none"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			refused(t, rig.Exec(t, v.env, strings.Fields(v.args)...), v.code, v.want...)
		})
	}
}

// Addresses that are taken end serve with code 1 before it has done anything.
func TestAddressInUse(t *testing.T) {
	t.Parallel()
	first := rig.Start(t, rig.Arguments([]string{"127.0.0.1:1"}, "timers", t.TempDir())...)
	await.Until(t, rig.Patience, "the first serves HTTP",
		func() bool { status, _ := first.Healthz(); return status == 200 })
	addr := first.Addr()
	for _, flag := range []string{"http", "pprof"} {
		t.Run(flag, func(t *testing.T) {
			args := rig.Arguments([]string{"127.0.0.1:1"}, "timers", t.TempDir(), "--http=", "--"+flag+"="+addr)
			refused(t, rig.Exec(t, nil, args...), 1, "another process has taken "+addr,
				"choose another address with --"+flag)
		})
	}
	if status, _ := first.Healthz(); status != 200 {
		t.Errorf("the first does not go on: /healthz is %d", status)
	}
	first.Term()
	if code := first.Exit(rig.Patience); code != 0 {
		t.Errorf("the first ends with %d", code)
	}
}
