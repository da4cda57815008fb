package docs

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/test/rig"
)

// mistakesFile has mistakes, and the sentences that answer them.
const mistakesFile = "testdata/mistakes.txt"

// Each mistake is answered by its sentence, at the place where somebody makes it.
func TestMistakes(t *testing.T) {
	t.Parallel()
	m := &mistakes{dir: t.TempDir()}
	m.address = map[string]string{"closed": rig.FreeAddr(t), "free": rig.FreeAddr(t), "dir": m.dir,
		"token": "Bearer " + addCaller(t, m.dir)}
	startAPI(t, m.address)
	limited := make(map[string]string)
	startAPI(t, limited, "--api-users", filepath.Join(m.dir, "users.yaml"))
	m.client = client(t, m.address["broker"])
	m.letters = consume(t, m.address["broker"], topics.DeadLetters("timers"))

	text, err := os.ReadFile(mistakesFile)
	if err != nil {
		t.Fatal(err)
	}
	sentences := make(map[string]bool)
	var mistake string
	for line := range strings.Lines(m.fill(string(text))) {
		switch line = strings.TrimSuffix(line, "\n"); {
		case line == "" || line[0] == '#':
			continue
		case mistake == "":
			mistake = line
			continue
		}
		words, code, got := wordsOf(mistake), "", ""
		switch kind := words[0]; kind {
		case "waterclock":
			code, got = m.command(t, words[1:]...)
		case "file":
			code, got = m.file(t, words[1])
		case "http":
			code, got = call(t, m.address["api"], words[1:])
		case "reader":
			code, got = call(t, limited["api"], words[1:])
		case "record":
			code, got = m.record(t, words[1], words[2:])
		default:
			t.Fatalf("%s has a mistake of kind %s", mistakesFile, kind)
		}
		begin, open := strings.CutSuffix(line, "…")
		if answer := code + " " + got; answer != line && !(open && strings.HasPrefix(answer, begin)) {
			t.Errorf("%s\n got %s\nwant %s", mistake, answer, line)
		}
		sentences[got], mistake = true, ""
	}
	if len(sentences) < 60 {
		t.Errorf("%d sentences, want 60", len(sentences))
	}
}

// mistakes are made at a service of dev.
type mistakes struct {
	dir     string
	address map[string]string // what the file calls by names in braces
	client  *kgo.Client
	letters *kafkatest.Collector
}

func (m *mistakes) fill(text string) string {
	for name, is := range m.address {
		text = strings.ReplaceAll(text, "{"+name+"}", is)
	}
	return text
}

// wordsOf splits a line as a shell does.
func wordsOf(line string) (words []string) {
	for _, w := range regexp.MustCompile(`'([^']*)'|"([^"]*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
		words = append(words, w[1]+w[2]+w[3])
	}
	return words
}

// command runs the program, and returns its exit code and what it says first.
func (m *mistakes) command(t *testing.T, args ...string) (code, said string) {
	t.Helper()
	cmd := exec.Command(rig.Binary(t), args...)
	cmd.Env = environ("WATERCLOCK_BROKERS="+m.address["broker"], "WATERCLOCK_URL=http://"+m.address["api"],
		"XDG_CONFIG_HOME="+m.dir)
	n, out := run(t, cmd)
	out, _, _ = strings.Cut(out, "\n")
	return strconv.Itoa(n), strings.TrimPrefix(out, "waterclock: ")
}

// file checks a file of settings.
func (m *mistakes) file(t *testing.T, text string) (code, said string) {
	t.Helper()
	path := filepath.Join(m.dir, "wc.yaml")
	text = strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(text)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return m.command(t, "config", "check", "--config", path)
}

// record writes a record to the request topic, and returns the detail of its dead letter.
func (m *mistakes) record(t *testing.T, id string, headers []string) (code, said string) {
	t.Helper()
	r := &kgo.Record{Topic: "timers", Value: []byte("v")}
	if id != "" {
		r.Key = []byte(id)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	if err := m.client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
	source := fmt.Sprintf("timers/%d/%d", r.Partition, r.Offset)
	until(t, "the dead letter of "+source, func() bool {
		for _, letter := range m.letters.Records() {
			if letter.Header(waterclock.HeaderSource) == source {
				said = letter.Header(waterclock.HeaderDetail)
			}
		}
		return said != ""
	})
	return "-", said
}

// addCaller writes a file of callers, with one who may read timers whose IDs begin with mine-, and returns that
// caller's token.
func addCaller(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.Command(rig.Binary(t), "api", "token", "reader", "--role", "read", "--topic", "timers",
		"--id-prefix", "mine-")
	cmd.Env = environ()
	var told strings.Builder
	cmd.Stderr = &told
	entry, err := cmd.Output()
	if err != nil {
		t.Fatal(err, told.String())
	}
	if err := os.WriteFile(filepath.Join(dir, "users.yaml"), append([]byte("callers:\n"), entry...),
		0o600); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(told.String()[strings.LastIndex(told.String(), ": ")+2:])
}

// startAPI starts dev, and notes the addresses of its broker, its API and its health once it is ready.
func startAPI(t *testing.T, address map[string]string, more ...string) {
	t.Helper()
	address["broker"] = rig.FreeAddr(t)
	address["data"] = t.TempDir()
	p := startDev(t, address["broker"], address["data"], append(more, "--demo=false")...)
	for name, pattern := range map[string]string{
		"api": `HTTP API on http://(127\.0\.0\.1:\d+),`, "health": `metrics on http://(127\.0\.0\.1:\d+)/`,
	} {
		found := regexp.MustCompile(pattern).FindStringSubmatch(p.Output())
		if found == nil {
			t.Fatalf("dev does not say %s:\n%s", pattern, p.Output())
		}
		address[name] = found[1]
	}
}

// call makes a call, of a method, a path, headers, and --data with a body. It returns the status and the detail.
func call(t *testing.T, api string, words []string) (code, said string) {
	t.Helper()
	headers, body := words[2:], ""
	if n := len(headers); n > 1 && headers[n-2] == "--data" {
		headers, body = headers[:n-2], headers[n-1]
	}
	r, err := http.NewRequestWithContext(t.Context(), words[0], "http://"+api+words[1], strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var problem struct{ Detail string }
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, &problem)
	}
	if err != nil {
		t.Errorf("%v: %v: %s", words, err, text)
	}
	return strconv.Itoa(resp.StatusCode), problem.Detail
}
