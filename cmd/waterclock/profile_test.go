package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/node/config"
)

// newProfiles writes a file of profiles and returns the environment of a user who has it.
func newProfiles(t *testing.T, text string) (environ []string, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), ".config", "waterclock")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "profiles.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"HOME=" + filepath.Dir(filepath.Dir(dir))}, dir
}

// A flag wins over the environment, that over the profile, that over the file, that over the default.
func TestPrecedenceOfProfiles(t *testing.T) {
	environ, dir := newProfiles(t, "current: used\nprofiles:\n  used: {brokers: used:1, topic: orders}\n  named: "+
		"{brokers: ['named:1', 'named:2'], tls: true}\n  empty: {}\n")
	file := filepath.Join(dir, "wc.yaml")
	if err := os.WriteFile(file, []byte("brokers: file:1\ntls: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		env  []string
		args []string
		want string // brokers, TLS, topic
	}{
		{"the one in use", nil, nil, "[used:1] false orders"},
		{"environment over flagless", []string{"WATERCLOCK_PROFILE=named"}, nil, "[named:1 named:2] true timers"},
		{"flag over environment", []string{"WATERCLOCK_PROFILE=named"}, []string{"--profile", "used"},
			"[used:1] false orders"},
		{"none", nil, []string{"--profile", ""}, "[127.0.0.1:9092] false timers"},
		{"none, by environment", []string{"WATERCLOCK_PROFILE="}, nil, "[127.0.0.1:9092] false timers"},
		{"setting of the environment over a profile", []string{"WATERCLOCK_BROKERS=env:1",
			"WATERCLOCK_REQUESTS=mine"}, nil, "[env:1] false mine"},
		{"flags over a profile", nil, []string{"--brokers", "flag:1", "--topic", "t"}, "[flag:1] false t"},
		{"a file over the one in use", nil, []string{"--config", file}, "[file:1] true timers"},
		{"a file of the environment over the one in use", []string{"WATERCLOCK_CONFIG=" + file}, nil,
			"[file:1] true timers"},
		{"a named one over a file", nil, []string{"--config", file, "--profile", "used"}, "[used:1] true orders"},
		{"a file over the default", nil, []string{"--config", file, "--profile", "empty"}, "[file:1] true timers"},
	} {
		var got calls
		code, _, stderr := runWith(&got, append(c.env, environ...), "", append([]string{"schedule", "--in", "1s",
			"--to", "x"}, c.args...)...)
		if code != exitOK {
			t.Errorf("%s: exit %d, %s", c.name, code, stderr)
			continue
		}
		if is := fmt.Sprintf("%v %v %s", got.cfg.Brokers, got.cfg.TLS, got.request.Topic); is != c.want {
			t.Errorf("%s: %s, want %s", c.name, is, c.want)
		}
	}
	// The settings of a service are its own.
	for _, command := range []string{"serve", "topics"} {
		var got calls
		code, _, stderr := runWith(&got, append(environ, "WATERCLOCK_PROFILE=used"), "", command, "--requests", "t")
		if code != exitUsage || !strings.Contains(stderr, "brokers needs at least one") {
			t.Errorf("%s: exit %d, %s", command, code, stderr)
		}
	}
}

// The API is that of the profile, and so are credentials, unless another URL is given: it must not learn them.
func TestProfileOfTheAPI(t *testing.T) {
	var calledFor, auth string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calledFor, auth = r.URL.Path, r.Header.Get("Authorization")
		fmt.Fprint(w, `{"timers":[],"count":7,"exact":true}`)
	}))
	defer s.Close()
	environ, dir := newProfiles(t, "")
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := runWith(&calls{}, environ, "", args...)
		if code != exitOK {
			t.Errorf("%v: exit %d, %s", args, code, stderr)
		}
		return stdout
	}
	run("profile", "set", "prod", "--url", s.URL, "--token-file", token, "--topic", "slow")
	run("count", "--profile", "prod")
	if calledFor != "/v1/topics/slow/timers/count" || auth != "Bearer secret" {
		t.Errorf("called %s with %q", calledFor, auth)
	}
	run("profile", "use", "prod")
	run("count", "--topic", "t")
	if calledFor != "/v1/topics/t/timers/count" || auth == "" {
		t.Errorf("called %s with %q", calledFor, auth)
	}
	if run("count", "--url", s.URL+"/"); auth != "" {
		t.Errorf("another URL got %q", auth)
	}
	environ = append(environ, config.EnvURL+"="+s.URL+"/x")
	if run("count"); auth != "" || !strings.HasPrefix(calledFor, "/x/") {
		t.Errorf("another URL got %q", auth)
	}
}

// A profile that lacks the brokers, or the API, is not filled up with those of dev: a command would change another
// service.
func TestPartsOfProfiles(t *testing.T) {
	environ, _ := newProfiles(t, "profiles:\n  api: {url: 'http://127.0.0.1:1'}\n  kafka: {brokers: 'a:1'}\n")
	for _, c := range []struct {
		line string
		code int
		want string
	}{
		{"cancel a1 --profile api", exitUsage, "waterclock: the profile has no brokers, to which this command " +
			"connects: waterclock profile set api --brokers adds them (profile api)\n"},
		{"list --profile kafka", exitUsage, "waterclock: the profile has no url, which this command needs: " +
			"waterclock profile set NAME --url adds it (profile kafka)\n"},
		{"cancel a1 --profile kafka", exitOK, ""},
		{"cancel a1 --profile api --brokers b:1", exitOK, ""},
	} {
		var got calls
		code, _, stderr := runWith(&got, environ, "", strings.Fields(c.line)...)
		if code != c.code || stderr != c.want || code == exitOK && got.request.ID != "a1" {
			t.Errorf("%s: exit %d, %s", c.line, code, stderr)
		}
	}
}

// What is wrong with a profile, and which one a command used, is said.
func TestProfilesThatAreWrong(t *testing.T) {
	environ, dir := newProfiles(t, "current: gone\nprofiles:\n  prod: {brokers: a:1, sasl-password-file: "+
		"password}\n  odd: {broker: a:1}\n  open: {url: http://127.0.0.1:1, token-file: OPEN}\n")
	path, open := filepath.Join(dir, "profiles.yaml"), filepath.Join(dir, "open")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{path: strings.ReplaceAll(string(text), "OPEN", open), open: "secret"} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"list"}, exitUsage, `waterclock: current is "gone", needs one of odd, open, prod (` + path + ")\n"},
		{[]string{"list", "--profile", "prd"}, exitUsage,
			`waterclock: --profile is "prd", needs one of odd, open, prod; did you mean prod? (` + path + ")\n"},
		{[]string{"list", "--profile", "prod"}, exitUsage,
			`waterclock: profiles.prod.sasl-password-file is "password", needs a path from the root (` + path +
				":3) (profile prod)\n"},
		{[]string{"list", "--profile", "odd"}, exitUsage,
			`waterclock: profiles.odd.broker needs to be a known key of a profile; did you mean brokers? (` + path +
				":4) (profile odd)\n"},
		{[]string{"list", "--profile", "open"}, exitUsage, "waterclock: " + open +
			" may be read by other users, and a profile rests on it: chmod go= " + open + " (profile open)\n"},
		{[]string{"profile", "use", "nobody"}, exitUsage,
			`waterclock: profile is "nobody", needs one of odd, open, prod (` + path + ")\n"},
		{[]string{"profile", "set", "x"}, exitUsage,
			"waterclock: profile set x changes nothing without flags, as in --brokers kafka:9092; see waterclock " +
				"profile set --help\n"},
		{[]string{"profile", "set", "x", "--config", "y"}, exitUsage,
			"waterclock: a profile has no --config: give its settings as flags, as in --brokers kafka:9092\n"},
		{[]string{"profile", "set", "a b", "--url", "http://a"}, exitUsage,
			`waterclock: the profile's name is "a b", needs a word without spaces` + "\n"},
		{[]string{"profile", "show"}, exitUsage, "waterclock: waterclock profile show takes the name of one " +
			"profile, not 0 arguments; see waterclock profile show --help\n"},
	} {
		code, _, stderr := runWith(&calls{}, environ, "", c.args...)
		if code != c.code || stderr != c.want {
			t.Errorf("%v: exit %d\n%swant\n%s", c.args, code, stderr, c.want)
		}
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	code, _, stderr := runWith(&calls{}, environ, "", "profile", "set", "new", "--token-file", open)
	if code != exitUsage || !strings.Contains(stderr, "may be read by other users") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("a profile that is rejected is written: %v\n%s", err, after)
	}
	if err := os.Chmod(open, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := runWith(&calls{}, environ, "", "status", "--profile", "open"); code != exitError ||
		!strings.HasSuffix(stderr, "(profile open)\n") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if err := os.Chmod(path, 0o620); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := runWith(&calls{}, environ, "", "list"); code != exitUsage || !strings.Contains(stderr,
		"profiles.yaml may be changed by other users, and a profile rests on it: chmod go-w") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}

// The login of a profile is for its own brokers: others must not learn the password.
func TestLoginOfAProfile(t *testing.T) {
	environ, dir := newProfiles(t, "")
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := runWith(&calls{}, environ, "", "profile", "set", "prod", "--brokers", "kafka:1,kafka:2", "--tls",
		"--sasl-mechanism", "PLAIN", "--sasl-username", "ann", "--sasl-password-file", password)
	if code != exitOK {
		t.Fatal(stderr)
	}
	environ = append(environ, config.EnvProfile+"=prod")
	for _, c := range []struct {
		env  []string
		args []string
		own  bool
	}{
		{nil, nil, true},
		{nil, []string{"--brokers", "kafka:2"}, true},
		{nil, []string{"--brokers", "other:1"}, false},
		{nil, []string{"--brokers", "kafka:1,other:1"}, false},
		{[]string{"WATERCLOCK_BROKERS=other:1"}, nil, false},
	} {
		var got calls
		code, _, stderr := runWith(&got, append(c.env, environ...), "", append([]string{"cancel", "a1"}, c.args...)...)
		if code != exitOK {
			t.Errorf("%v %v: exit %d, %s", c.env, c.args, code, stderr)
			continue
		}
		own, noted := got.cfg.SASLPasswordFile != "", strings.Contains(stderr, "to its own brokers only")
		if own != c.own || own == noted || !got.cfg.TLS {
			t.Errorf("%v %v: %v logs in with %q, TLS %v; %s", c.env, c.args, got.cfg.Brokers, got.cfg.SASLPasswordFile,
				got.cfg.TLS, stderr)
		}
	}
}

// A list where one value belongs, perhaps an empty one, is a mistake like any other.
func TestListsInProfiles(t *testing.T) {
	for text, want := range map[string]string{
		"current: []\nprofiles: {a: {}}\n":             "current needs a single value",
		"current: [a, b]\nprofiles: {a: {}}\n":         "current needs a single value",
		"current: a\nprofiles: {a: {tls-key: []}}\n":   "profiles.a.tls-key needs a single value",
		"current: a\nprofiles: {a: {url: []}}\n":       "profiles.a.url needs a single value",
		"current: a\nprofiles: {a: {ca: [/x, /y]}}\n":  "profiles.a.ca needs a single value",
		"current: a\nprofiles: {a: {brokers: [ ]}}\n":  "profiles.a.brokers needs a value",
		"current: a\nprofiles: {a: {tls: [], url: x}}": "profiles.a.tls needs a single value",
	} {
		environ, _ := newProfiles(t, text)
		for _, command := range []string{"list", "profile show a", "profile list"} {
			code, _, stderr := runWith(&calls{}, environ, "", strings.Fields(command)...)
			if command != "profile list" && (code != exitUsage || !strings.Contains(stderr, want)) {
				t.Errorf("%s of %q: exit %d, %s", command, text, code, stderr)
			}
		}
	}
}

// Without a home directory there are no profiles: a file of the working directory, where anybody may have put it, says
// nothing.
func TestProfilesWithoutHome(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll(".config/waterclock", 0o700); err != nil {
		t.Fatal(err)
	}
	const text = "current: a\nprofiles: {a: {brokers: 'evil:1'}}\n"
	if err := os.WriteFile(".config/waterclock/profiles.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var got calls
	code, _, stderr := runWith(&got, nil, "", "cancel", "a1")
	if code != exitOK || got.cfg.Brokers[0] != "127.0.0.1:9092" {
		t.Errorf("exit %d, %s; brokers %v", code, stderr, got.cfg)
	}
	code, _, stderr = runWith(&calls{}, nil, "", "profile", "set", "b", "--url", "http://a:1")
	if code != exitUsage || !strings.Contains(stderr, "set HOME or XDG_CONFIG_HOME") {
		t.Errorf("exit %d, %s", code, stderr)
	}
}
