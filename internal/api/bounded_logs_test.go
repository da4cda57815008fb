package api_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// crowdedLogs counts concurrent readers, and keeps each of them until it is released.
type crowdedLogs struct {
	emptyLogs
	now, most atomic.Int32
	release   chan struct{}
}

func (c *crowdedLogs) Bounds(context.Context, string) (map[int32][2]int64, error) {
	bounds := make(map[int32][2]int64)
	for p := range int32(partitions) {
		bounds[p] = [2]int64{0, 1}
	}
	return bounds, nil
}

func (c *crowdedLogs) Read(context.Context, string, map[int32][2]int64, func(*api.Record) error) error {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
	<-c.release
	return nil
}

// However many callers ask for histories, only logReads logs are read at a time, and half as many
// for one caller. All calls are answered.
func TestLogsAreReadInTurns(t *testing.T) {
	t.Run("one caller", func(t *testing.T) { readInTurns(t, 4, 1) })
	t.Run("three callers", func(t *testing.T) { readInTurns(t, 8, 3) })
}

func readInTurns(t *testing.T, most int32, names int) {
	const callers = 24
	l := &crowdedLogs{release: make(chan struct{})}
	in := reading(t, l)
	var calls sync.WaitGroup
	for i := range callers {
		calls.Go(func() {
			in.Get(path("x")+"/events", "Test-Caller", fmt.Sprint("caller-", i%names)).Is(http.StatusOK, "")
		})
	}
	await.Within(time.Minute, func() bool { return l.now.Load() >= most })
	for range callers {
		l.release <- struct{}{}
	}
	calls.Wait()
	if n := l.most.Load(); n != most {
		t.Errorf("%d read at a time, want %d", n, most)
	}
}

// endlessLogs yield nothing but signs of life for as long as the caller listens.
type endlessLogs struct{ emptyLogs }

func (endlessLogs) Follow(ctx context.Context, _ string, _ api.Position, fn func(*api.Record) error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if err := fn(nil); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// A caller of HEAD for the stream of events gets no data, so it would never show that the caller
// has gone: such a call takes no place among the streams.
func TestHeadOfTheStreamHoldsNoPlace(t *testing.T) {
	in := reading(t, endlessLogs{})
	for range 40 { // more than there are places
		c, err := net.Dial("tcp", strings.TrimPrefix(in.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		fmt.Fprint(c, "HEAD /v1/topics/timers/events HTTP/1.1\r\nHost: x\r\n\r\n")
		head := make([]byte, 1024)
		n, err := c.Read(head)
		if err != nil || !strings.HasPrefix(string(head[:n]), "HTTP/1.1 200") {
			t.Fatalf("%q, %v", head[:n], err)
		}
		fmt.Fprint(c, "G") // from here on net/http does not notice that the connection is closed
		c.Close()
	}
}

// Reading a caller's rights may take a file access; other jobs go on in the meantime.
func TestRightsAreAskedForWithoutTheLockOfJobs(t *testing.T) {
	in, f := faked(t)
	started := in.Call("POST", allTimers+"/cancel?prefix=x", "")
	job := started.Object("job")
	id, _ := job["id"].(string)
	if id == "" {
		t.Fatalf("no job: %d %s", started.Status, started.Text)
	}
	ended(t, in, started) // it asks for the right itself
	asked, answer := make(chan struct{}), make(chan struct{})
	f.set(func() {
		f.may = func(context.Context, access.Role, string, string) error {
			close(asked)
			<-answer
			return nil
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		in.Get("/v1/jobs/"+id).Is(http.StatusOK, "")
	}()
	<-asked
	in.Get("/v1/jobs/unknown").Is(http.StatusNotFound, "not-found")
	close(answer)
	<-done
}
