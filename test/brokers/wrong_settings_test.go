package brokers

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/test/rig"
)

// valid are settings that serve would start with, in each layer.
var valid = map[string]string{"brokers": "127.0.0.1:1", "requests": "timers,slow", "targets": "*"}

// wrong is one setting that is refused.
type wrong struct {
	setting, value string // where it is a list, the last one is wrong
	more           string // further settings that are fine, as "name=value name=value"
	needs          string // what the sentence says to do
}

// wrongs are ways in which each setting can be wrong; internal/node/config has more of them. DIR stands for a
// directory with an empty file, a file of text and one of 65 KiB.
var wrongs = []wrong{
	{"brokers", "", "", "at least one host:port"},
	{"brokers", "a:1,kafka", "", "host:port for each broker"},
	{"tls", "true", "tls-ca=DIR/none", "PEM files that can be read: load authorities"},
	{"tls", "true", "tls-ca=DIR/text", "PEM files that can be read: load authorities: no certificate"},
	{"tls", "true", "tls-cert=DIR/none tls-key=DIR/text", "PEM files that can be read: load client certificate"},
	{"tls-ca", "DIR/text", "", "tls to be true"},
	{"tls-cert", "", "tls=true tls-key=DIR/text", "tls-key with it, and the other way round"},
	{"tls-key", "DIR/text", "", "tls to be true"},
	{"sasl-mechanism", "plain", "", "one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM"},
	{"sasl-username", "u", "", "to be unset without sasl-mechanism"},
	{"sasl-username", "", "sasl-mechanism=PLAIN sasl-password-file=DIR/text", "to be set with sasl-mechanism PLAIN"},
	{"sasl-username", "u", "sasl-mechanism=OAUTHBEARER sasl-token-file=DIR/text",
		"to be unset with sasl-mechanism OAUTHBEARER"},
	{"sasl-password-file", "DIR/text", "", "to be unset without sasl-mechanism"},
	{"sasl-password-file", "DIR/none", "sasl-mechanism=SCRAM-SHA-512 sasl-username=u", "a file with the secret"},
	{"sasl-password-file", "DIR/empty", "sasl-mechanism=PLAIN sasl-username=u", "is empty"},
	{"sasl-password-file", "DIR/large", "sasl-mechanism=PLAIN sasl-username=u", "has more than 65536 bytes"},
	{"sasl-token-file", "DIR/none", "sasl-mechanism=OAUTHBEARER", "a file with the secret"},
	{"sasl-token-file", "DIR/text", "sasl-mechanism=PLAIN sasl-username=u sasl-password-file=DIR/text",
		"to be unset with sasl-mechanism PLAIN"},
	{"tls", "false", "sasl-mechanism=AWS_MSK_IAM sasl-username=u sasl-password-file=DIR/text",
		"to be true with sasl-mechanism AWS_MSK_IAM"},
	{"requests", "", "", "at least one request topic"},
	{"requests", "a b", "", "topic names"},
	{"requests", strings.Repeat("a", 226), "", "topic names: 1 to 225"},
	{"requests", "__consumer_offsets", "", "topics that neither begin with __ nor belong to the service"},
	{"delay", "retry", "", "TOPIC:DURATION or TOPIC:DURATION:TARGET for each topic"},
	{"delay", "retry:soon:orders", "", "a duration such as"},
	{"delay", "retry:366d:orders", "", "1ms to 365d"},
	{"delay", "timers:5m:orders", "", "none of the request topics"},
	{"delay", "retry:5m:mail", "targets=orders", "a target that is one of the targets of retry"},
	{"delay", "retry:5m:timers", "targets=*", "a target that neither begins with __ nor belongs to the service"},
	{"targets", "", "", "at least one glob, as in orders or mail.*; * allows every topic"},
	{"targets", "a[", "", "globs as in"},
	{"default-target", "timers.waterclock.dead-letters", "", "no timer may fire there"},
	{"targets", "timers.waterclock.changelog", "", "no timer may fire there"},
	{"default-target", "others:orders", "", "a prefix that is one of the request topics"},
	{"target-rates", "orders", "", "a target and a rate for each entry"},
	{"target-rates", "orders=0/s", "", "a whole number of firings, 1 to 10000000"},
	{"target-rates", "orders=5/d", "", "a rate a second, minute or hour"},
	{"target-rates", "orders=5/s:none", "", "a whole number as burst"},
	{"target-rates", "others:orders=5/s", "", "a prefix that is one of the request topics"},
	{"partitioner-check", "no", "", "one of off, warn, dead-letter"},
	{"create-topics", "perhaps", "", "true or false"},
	{"console", "perhaps", "", "true or false"},
	{"replication-factor", "three", "", "a whole number"},
	{"replication-factor", "0", "", "-1 or 1 to 32767"},
	{"topic-check-interval", "1", "", "a duration such as"},
	{"topic-check-interval", "999ms", "", "at least 1s"},
	{"accept-group", "certainly", "", "true or false"},
	{"accept-lost-changelog", "certainly", "", "true or false"},
	{"limit-horizon", "1y", "", "a duration such as"},
	{"limit-horizon", "36526d", "", "1s to 36525d"},
	{"limit-headers", "0", "", "1 to 128"},
	{"limit-headers", "1.5", "", "a whole number"},
	{"limit-header-bytes", "64QB", "", "a number of bytes such as"},
	{"events", "perhaps", "", "true or false"},
	{"group", "", "", "a name"},
	{"instance-id", "a/b", "", "1 to 249 letters"},
	{"data-dir", "", "", "a directory"},
	{"http", "8680", "", "host:port, or to be empty"},
	{"http-web-config", "DIR/none", "http=127.0.0.1:0", "a web configuration as Prometheus exporters have"},
	{"http-web-config", "DIR/text", "http=127.0.0.1:0", "a web configuration as Prometheus exporters have"},
	{"http-web-config", "DIR/text", "", "http to be set"},
	{"advertise", "wc-1", "api=127.0.0.1:0", "host:port with the port"},
	{"advertise", "wc-1:8681", "", "api to be set"},
	{"pprof", "0.0.0.0:6060", "", "host:port on the loopback interface"},
	{"api", "8681", "", "host:port, or to be empty"},
	{"api", "0.0.0.0:0", "", "api-users with its callers, or api-open if a proxy authenticates"},
	{"api-open", "true", "api=127.0.0.1:0 api-users=DIR/callers", "to be false if api-users is set"},
	{"api-users", "DIR/none", "api=127.0.0.1:0", "a file of callers: no such file"},
	{"api-users", "DIR/empty", "api=127.0.0.1:0", "it names no caller"},
	{"api-tls-cert", "DIR/text", "api=127.0.0.1:0", "api-tls-key with it"},
	{"api-tls-cert", "DIR/text", "api=127.0.0.1:0 api-tls-key=DIR/text", "PEM files of a certificate and its key: tls"},
	{"api-tls-key", "DIR/text", "api=127.0.0.1:0", "api-tls-cert with it"},
	{"api-host", "timers.example.org:443", "api=0.0.0.0:0 api-open=true", "globs of hosts"},
	{"api-host", "timers.example.org", "api=127.0.0.1:0", "api-open with it"},
	{"api-peers", "[", "api=127.0.0.1:0", "globs of hosts"},
	{"api-client-ca", "DIR/text", "api=127.0.0.1:0 api-users=DIR/callers", "api-tls-cert with it"},
	{"api-client-ca", "DIR/text", "api=127.0.0.1:0", "a PEM file of authorities: load authorities: no certificate"},
	{"api-key-file", "DIR/text", "api=127.0.0.1:0", "a file with a key: key 1 has 4 characters, needs 32 or more"},
	{"api-body-limit", "2MQ", "", "a number of bytes such as"},
	{"api-body-limit", "1KiB", "", "64KiB to 1GiB"},
	{"api-rate", "-1", "", "0 to 1000000"},
	{"api-concurrent", "0", "", "1 to 100000"},
	{"api-audit", "", "", "stderr, off, or the path of a file"},
	{"session-timeout", "soon", "", "a duration such as"},
	{"session-timeout", "-10s", "", "a duration such as"},
	{"session-timeout", "31m", "rebalance-timeout=1h", "1s to 30m"},
	{"rebalance-timeout", "1h1m", "", "at most 1h"},
	{"on-stop", "stay", "", "an instance-id with it"},
	{"lanes", "99999999999999999999", "", "a whole number"},
	{"transactional-ids", "1", "", "2 to 4"},
	{"firing-interval", "2s", "", "0s to 1s"},
	{"sub-partitions", "9", "", "0 to 8"},
	{"standbys", "4", "", "0 to 3"},
	{"tracing", "maybe", "", "one of off, pass, link"},
	{"transaction-timeout", "29s", "", "30s to 15m"},
	{"memory", "lots", "", "a number of bytes such as"},
	{"memory", "-1", "", "a number of bytes such as"},
	{"memory", "9223372036854775808", "", "a number of bytes such as"},
	{"log-level", "loud", "", "one of debug, info, warn, error"},
	{"log-format", "xml", "", "one of text, json"},
}

// callers is a file of callers that is fine.
const callers = "callers: {shop: {tokens: " +
	"['sha256:0000000000000000000000000000000000000000000000000000000000000000'], " +
	"grants: [{role: read, topic: '*'}]}}"

// layers say a setting in the three ways there are.
var layers = []struct {
	name string
	// say returns arguments and variables; file is one that may be written.
	say func(t testing.TB, settings map[string]string, file string) (args, env []string)
}{
	{"flags", func(_ testing.TB, settings map[string]string, _ string) (args, env []string) {
		for name, value := range settings {
			args = append(args, "--"+name+"="+value)
		}
		return args, nil
	}},
	{"environment", func(_ testing.TB, settings map[string]string, _ string) (args, env []string) {
		for name, value := range settings {
			env = append(env, "WATERCLOCK_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"="+value)
		}
		return nil, env
	}},
	{"file", func(t testing.TB, settings map[string]string, file string) (args, env []string) {
		var b strings.Builder
		for name, value := range settings {
			b.WriteString(name + ": '" + value + "'\n")
		}
		write(t, file, b.String())
		return []string{"--config", file}, nil
	}},
}

func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Each wrong setting, in each layer, ends serve with code 2 before it has done anything, and a line that names the
// setting, shows the value and says what is needed.
func TestWrongSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "empty"), "")
	write(t, filepath.Join(dir, "text"), "text")
	write(t, filepath.Join(dir, "callers"), callers)
	write(t, filepath.Join(dir, "large"), strings.Repeat("x", 64<<10+1))
	seen := make(map[string]bool)
	for _, w := range wrongs {
		seen[w.setting] = true
		value := strings.ReplaceAll(w.value, "DIR", dir)
		settings := map[string]string{"http": ""} // a fixed port may be taken
		for name, v := range valid {
			settings[name] = v
		}
		for _, m := range strings.Fields(strings.ReplaceAll(w.more, "DIR", dir)) {
			name, v, _ := strings.Cut(m, "=")
			settings[name] = v
		}
		settings[w.setting] = value
		for _, l := range layers {
			t.Run(w.setting+"="+w.value[:min(40, len(w.value))]+"/"+l.name, func(t *testing.T) {
				args, env := l.say(t, settings, filepath.Join(t.TempDir(), "waterclock.yaml"))
				p := rig.Exec(t, env, append([]string{"serve"}, args...)...)
				text := refused(t, p, 2, w.setting, value[strings.LastIndexByte(value, ',')+1:], w.needs)
				if strings.Contains(text, "strconv") {
					t.Errorf("it speaks of itself: %s", text)
				}
			})
		}
	}
	for _, name := range settingsOf(t, "serve") {
		if !seen[name] && name != "config" { // TestWrongUsage has that
			t.Errorf("no wrong value of --%s is tried", name)
		}
	}
}

// settingsOf are the flags that the help of a command shows.
func settingsOf(t testing.TB, command string) (names []string) {
	t.Helper()
	p := rig.Exec(t, nil, command, "--help")
	if code := p.Exit(rig.Patience); code != 0 {
		t.Fatalf("help ends with %d", code)
	}
	for _, m := range regexp.MustCompile(`(?m)^ +--([a-z-]+) `).FindAllStringSubmatch(p.Output(), -1) {
		names = append(names, m[1])
	}
	if len(names) < 10 {
		t.Fatalf("found %d flags of %s only: the test looks in the wrong way", len(names), command)
	}
	return names
}
