package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/caller"
	"github.com/waterclock/waterclock/internal/kafkatest/runs"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

const (
	// crowd is how many hostile callers there are. Each does one thing after the other, and rests
	// for crowdRest in between, so that this machine is not what is measured.
	crowd     = 64
	crowdRest = 50 * time.Millisecond
	// crowdTime is how long each phase of a try lasts, without the crowd and beside it.
	crowdTime  = 3 * time.Second
	crowdTries = 5
	// crowdMemory is what the process may have at its peak.
	crowdMemory = 400 << 20
	// crowdSlower is by how much the good caller may be slower in the second best try, on a machine with nothing else
	// to do. If he waits longer than leastP99 without the crowd, the machine is busy; then the crowd, which runs on the
	// same processors, may cost him crowdSlowerBusy. Without fair shares he would wait for seconds.
	crowdSlower, crowdSlowerBusy = 2, 4
	leastP99                     = 25 * time.Millisecond
)

// A body of 100 MB is refused before it is there, whether its length is said or not; what
// would forge a line of the log does not; and the instance answers as before.
func TestHostileCalls(t *testing.T) {
	t.Parallel()
	s := &setup{Setup: rig.NewSetup(t, kafkatest.Shared(t), 1, 1)}
	cfg := s.Config()
	cfg.API = "127.0.0.1:0"
	in, log := rig.ServeLogged(t, cfg, node.Options{})
	in.Ready(1, limit)
	s.Caller = in.API()
	const large = 100 << 20
	for _, length := range []int64{large, -1} {
		sent := &zeros{left: large}
		r := s.Prepare("PUT", s.timer("large"), sent)
		r.ContentLength = length
		if resp, err := s.HTTP.Do(r); err == nil { // else the connection has ended while it was sent
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("length %d: %s", length, resp.Status)
			}
		}
		if sent.left < large/2 {
			t.Errorf("length %d: %d bytes were taken", length, large-sent.left)
		}
	}
	const forged = "x\ntime=2026-01-01T00:00:00Z level=ERROR msg=forged\r\n\x1b[31m"
	s.put(forged, "timer-after", "1h").Is(201, "scheduled")
	s.put(forged, "timer-after", "1h\tlevel=ERROR").Is(400, "bad-duration")
	s.Get(s.timer(forged)).Is(200, "")
	s.Call("DELETE", s.timer(forged), "").Is(200, "cancelled")
	if audits := log.Lines("msg=audit"); len(audits) < 3 {
		t.Errorf("audit %q", audits)
	}
	for _, line := range log.Lines("forged") {
		if strings.Count(line, "\n") != 1 || strings.ContainsAny(line, "\r\x1b") ||
			strings.HasPrefix(line, "time=2026-01-01T00:00:00Z") {
			t.Errorf("a line of the log is forged: %q", line)
		}
	}
}

// zeros is a body, of which so much has not been read.
type zeros struct{ left int64 }

func (z *zeros) Read(b []byte) (int, error) {
	if z.left <= 0 {
		return 0, io.EOF
	}
	clear(b)
	z.left -= int64(len(b))
	return len(b), nil
}

// Beside 64 callers who may read, and do what harm they can, memory is bounded, and a caller who
// writes is answered as fast as without them.
func TestACrowdOfHostileCallers(t *testing.T) {
	runs.NeedSlow(t) // what it compares hangs on the processors that are free
	s := &setup{Setup: rig.NewSetup(t, kafkatest.Shared(t), partitions, 1)}
	tokens, users := crowdFile(t, s.Requests)
	conf := rig.File(t, "waterclock.yaml", fmt.Sprintf("tenants:\n  %s:\n    events: true", s.Requests))
	addr := rig.FreeAddr(t)
	p := rig.Start(t, rig.Arguments(s.Cluster.Seeds(), s.Requests, filepath.Join(t.TempDir(), "data"), "--config", conf,
		"--api", addr, "--api-users", users)...)
	p.Ready(partitions, limit)
	s.Caller = caller.New(t, "http://"+addr)
	s.Headers = []string{"Authorization", "Bearer " + tokens["good"]}
	for i := range 200 { // lists have something to be large of
		s.put(fmt.Sprintf("big-%03d", i), "timer-after", "10h", "waterclock-pass",
			"h="+strings.Repeat("x", 60_000)).Is(201, "")
	}
	// phase is how long the slowest of a hundred PUTs takes.
	phase := func() time.Duration {
		var took []time.Duration
		for end := time.Now().Add(crowdTime); time.Now().Before(end); {
			began := time.Now()
			got := s.put("good", "timer-after", "10h")
			if took = append(took, time.Since(began)); got.Status != 201 {
				got.Is(200, "")
			}
		}
		slices.Sort(took)
		return took[len(took)*99/100]
	}
	var tooSlow []float64 // of each try: how much slower, as a part of what is allowed
	for range crowdTries {
		alone := phase()
		h := newHostile(addr, s.Requests, tokens)
		beside := phase()
		h.stop()
		alone = max(alone, phase()) // this machine has more to do now than then, or less
		_, peak := p.Memory()
		t.Logf("p99 of a PUT: %v alone, %v beside the crowd, which had %v; memory %d MiB at its peak", alone, beside,
			h.answers, peak>>20)
		if peak > crowdMemory {
			t.Fatalf("%d MiB at the peak, want %d", peak>>20, crowdMemory>>20)
		}
		if len(h.answers) < 3 {
			t.Fatalf("the crowd was not answered: %v", h.answers)
		}
		limit := crowdSlower
		if alone > leastP99 {
			limit = crowdSlowerBusy
		}
		tooSlow = append(tooSlow, beside.Seconds()/max(alone, leastP99).Seconds()/float64(limit))
	}
	slices.Sort(tooSlow)
	// What other tests do meanwhile makes a try slower, and never faster: two tries of five count. With the machine to
	// itself the median is within the limit, too.
	if second := tooSlow[1]; second > 1 {
		t.Fatalf("beside the crowd the good caller's p99 is %.1f times what it may be, in the second best of %.1f",
			second, tooSlow)
	}
}

// crowdFile has hostile callers who may read, and a good one.
func crowdFile(t *testing.T, requests string) (tokens map[string]string, path string) {
	t.Helper()
	callers := map[string]access.Grant{"good": {Role: access.Write, Topic: requests}}
	for i := range crowd {
		callers[fmt.Sprint("hostile", i)] = access.Grant{Role: access.Read, Topic: requests}
	}
	return rig.Users(t, callers)
}

// hostile is a crowd under way.
type hostile struct {
	addr, requests string
	cancel         context.CancelFunc
	wg             sync.WaitGroup

	mu      sync.Mutex     // guards answers
	answers map[string]int // status lines, and what came instead
}

func newHostile(addr, requests string, tokens map[string]string) *hostile {
	ctx, cancel := context.WithCancel(context.Background())
	h := &hostile{addr: addr, requests: requests, cancel: cancel, answers: make(map[string]int)}
	bomb := `{"timers":[` + strings.Repeat("1,", 1_000_000) + `1]}`
	headers := `{"timers":[{"headers":[` + strings.Repeat("{},", 600_000) + `{}]}]}`
	for i := range crowd {
		token := tokens[fmt.Sprint("hostile", i)]
		h.wg.Go(func() {
			for n := i; ctx.Err() == nil; n++ {
				switch timers := "/v1/topics/" + requests + "/timers"; n % 8 {
				case 0: // bodies that are bombs
					h.call(ctx, token, "POST", timers, bomb, len(bomb), true)
				case 1:
					h.call(ctx, token, "POST", "/v1/topics/nosuch/timers", headers, len(headers), true)
				case 2: // and such as never come
					h.call(ctx, token, "PUT", timers+"/x", "", 2<<20, true)
				case 3:
					h.call(ctx, token, "GET", "/v1/topics/"+requests+"/events", strings.Repeat("x", 100_000),
						2<<20, false)
				case 4: // answers that are not taken
					h.call(ctx, token, "GET", timers+"?limit=1000&prefix=big-", "", 0, false)
				case 5:
					h.call(ctx, token, "GET", timers+"?limit=1000&order=id", "", 0, true)
				case 6: // logs
					h.call(ctx, token, "GET", timers+"/big-001/events?limit=1000", "", 0, true)
				case 7:
					h.call(ctx, token, "GET", "/v1/topics/"+requests+"/dead-letters?limit=100", "", 0, true)
					h.call(ctx, "wct_"+strings.Repeat("x", 40), "GET", timers, "", 0, true)
				}
				select {
				case <-ctx.Done():
				case <-time.After(crowdRest):
				}
			}
		})
	}
	return h
}

func (h *hostile) stop() {
	h.cancel()
	h.wg.Wait()
}

// call makes a call with a body that is as long as it says, or is not; takes: the answer is taken,
// else it is left, as is a stream, for a second.
func (h *hostile) call(ctx context.Context, token, method, path, body string, length int, takes bool) {
	word := "cut"
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.answers[word]++
	}()
	conn, err := net.Dial("tcp", h.addr)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	announced := ""
	if length > 0 {
		announced = fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", length)
	}
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n%s\r\n", method, path, h.addr,
		token, announced)
	_, _ = io.WriteString(conn, body) // it may be refused before it is there
	if !takes {
		_ = conn.SetDeadline(time.Now().Add(time.Second))
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	if err != nil {
		return
	}
	defer resp.Body.Close()
	word = fmt.Sprint(resp.StatusCode)
	if !takes {
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		return
	}
	var problem struct{ Reason string }
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode >= 400 && json.Unmarshal(text, &problem) == nil {
		word += " " + problem.Reason
	}
}
