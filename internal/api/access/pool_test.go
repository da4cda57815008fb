package access

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/waterclock/waterclock/internal/kafkatest/await"
)

// as returns a context of a caller.
func as(name string) context.Context {
	return WithCaller(context.Background(), Caller{Name: name})
}

// A single caller gets everything. Beside others it gets the rest of its share immediately.
func TestPoolIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(32, 32, time.Second)
		var ended int
		take := func(name string) *Reservation {
			h := p.Acquire(as(name), 1)
			if h != nil {
				h.Cuttable(func() { ended++; go h.Release() })
			}
			return h
		}
		for range 32 {
			if take("greedy") == nil {
				t.Fatal("alone it has not all")
			}
		}
		if began := time.Now(); take("greedy") != nil || time.Since(began) != time.Second {
			t.Error("a caller has more than all, or is told so too early")
		}
		for i := range 16 {
			began := time.Now()
			if take("good") == nil || time.Since(began) > 0 {
				t.Fatalf("%d: waited %v", i, time.Since(began))
			}
		}
		if ended != 16 {
			t.Errorf("%d were ended, want 16", ended)
		}
		if take("good") != nil {
			t.Error("it takes what is another's")
		}
		if take("third") == nil {
			t.Error("a third one has nothing")
		}
	})
}

// If reservations cannot be cut, one caller is limited. Every caller gets the minimum.
func TestPoolHasLimits(t *testing.T) {
	p := NewPool(16, 4, 0)
	var all []*Reservation
	for range 4 {
		all = append(all, p.Acquire(as("a"), 1))
	}
	if p.Acquire(as("a"), 1) != nil || p.Acquire(as("b"), 1) == nil {
		t.Error("the limit of a caller")
	}
	all[0].Release()
	all[0].Release()
	if p.Acquire(as("a"), 1) == nil {
		t.Error("what was given back is not there")
	}
	p = NewPool(10, 10, 0)
	p.least = 3
	p.Acquire(as("a"), 10)
	if p.Acquire(as("b"), 3) == nil || p.Acquire(as("b"), 1) != nil {
		t.Error("the least of a caller")
	}
}

// Waiters are served by how much their callers hold, not in the order of arrival.
func TestPoolServesTheLeastFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(2, 2, time.Minute)
		var order []string
		a1, a2 := p.Acquire(as("a"), 1), p.Acquire(as("a"), 1)
		for _, name := range []string{"a", "a", "b"} {
			go func() {
				if h := p.Acquire(as(name), 1); h != nil {
					order = append(order, name)
				}
			}()
			synctest.Wait()
		}
		a1.Release()
		synctest.Wait()
		a2.Release()
		synctest.Wait()
		if !slices.Equal(order, []string{"b", "a"}) {
			t.Errorf("served %v", order)
		}
		time.Sleep(2 * time.Minute)
	})
}

// Whatever callers take, grow, give back and lose: the accounts are right. All together hold no more than there
// is, except for each one's minimum and what is cut and about to end. And a caller that holds no more than its
// share loses nothing.
func TestPoolKeepsShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.Int64Range(1, 40).Draw(t, "whole")
		p := NewPool(whole, whole, 0)
		p.least = rapid.Int64Range(0, 2).Draw(t, "least")
		held := make(map[*Reservation]int64)
		var cut []*Reservation
		sum := func(name string) (n int64) {
			for h, of := range held {
				if h.name == name && !h.was {
					n += of
				}
			}
			return n
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "caller")
			n := rapid.Int64Range(1, 10).Draw(t, "n")
			before := map[string]int64{"a": sum("a"), "b": sum("b"), "c": sum("c"), "d": sum("d")}
			cut = nil
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0, 1:
				h := p.Reservation(as(name))
				if rapid.Bool().Draw(t, "can be cut") {
					h.Cuttable(func() { cut = append(cut, h) })
				}
				if h.Grow(as(name), n) {
					held[h] = n
				}
			case 2:
				for h := range held {
					if h.name == name && h.Grow(as(name), n) {
						held[h] += n
						break
					}
				}
			case 3:
				for h := range held {
					if h.name == name {
						h.Release()
						delete(held, h)
						break
					}
				}
			}
			for _, h := range cut {
				if h.name == name || before[h.name] <= before[name]+n {
					t.Fatalf("%s holds %d and has something cut for %s, who would hold %d", h.name, before[h.name],
						name, before[name]+n)
				}
			}
			var used, ending int64
			for h, of := range held {
				if used += of; h.was {
					ending += of
				}
			}
			if used != p.used || ending != p.ending || used > whole+4*p.least {
				t.Fatalf("%d held, %d on the books; %d and %d are ending; of %d", used, p.used, ending, p.ending, whole)
			}
		}
		for h := range held {
			h.Release()
		}
		if p.used != 0 || p.ending != 0 || len(p.callers) != 0 || len(p.waiting) != 0 {
			t.Fatalf("what is left: %+v", p)
		}
	})
}

// crowd returns a guard whose file has this many readers, from r0 on, in addition to its usual callers.
func crowd(t *testing.T, n int) *Guard {
	t.Helper()
	text := usersFile()
	for i := range n {
		text += fmt.Sprintf("  r%d:\n    tokens: [%s]\n    grants: [{role: read, topic: orders}]\n", i,
			tokenLine(fmt.Sprintf("r%d-", i)))
	}
	o := options(t)
	o.BodyLimit = 2 << 20
	o.Users = writeFile(t, filepath.Join(t.TempDir(), "crowd.yaml"), text)
	g, _ := guard(t, o)
	return g
}

// halfBody sends the beginning of a PUT of 2 MiB, and nothing more.
func halfBody(t *testing.T, address, caller string, sent int) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "PUT / HTTP/1.1\r\nHost: localhost\r\n%s\r\nContent-Length: %d\r\n\r\n", bearer(caller), 2<<20)
	if _, err := c.Write(make([]byte, sent)); err != nil {
		t.Fatal(err)
	}
	return c
}

func (g *Guard) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	await.Until(t, 30*time.Second, what, func() bool {
		g.memory.mu.Lock()
		defer g.memory.mu.Unlock()
		return is()
	})
}

func put(t *testing.T, address, caller string, n int) *answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+address+"/",
		strings.NewReader(strings.Repeat("x", n)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", strings.TrimPrefix(bearer(caller), "Authorization: "))
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	return answerOf(a)
}

// An announced body holds nothing, and a stalled body holds the bytes that have arrived. A caller with more than a
// share gives way to one with less.
func TestSlowBodiesDelayNobody(t *testing.T) {
	const callers, each = 64, 2
	g := crowd(t, callers)
	address := served(t, g, http.HandlerFunc(echo), nil)
	var slow []net.Conn
	for i := range callers {
		for range each {
			slow = append(slow, halfBody(t, address, fmt.Sprintf("r%d-", i), 0))
		}
	}
	if a := put(t, address, "ops", 1<<20); a.StatusCode != http.StatusOK || g.memory.used != 0 {
		t.Errorf("beside bodies that were announced: %d, %d bytes are taken", a.StatusCode, g.memory.used)
	}
	for _, c := range slow {
		if _, err := c.Write(make([]byte, 1<<20)); err != nil {
			break // it was cut already
		}
	}
	g.until(t, "bodies fill the memory", func() bool { return g.memory.used > g.memory.whole*9/10 })
	for _, n := range []int{5, 100 << 10, 200 << 10} {
		began := time.Now()
		if a := put(t, address, "ops", n); a.StatusCode != http.StatusOK {
			t.Errorf("a body of %d bytes: %d %.300s, after %v", n, a.StatusCode, a.Body, time.Since(began))
		}
	}
	g.memory.mu.Lock()
	over := g.memory.used > g.memory.whole+callers*memoryLeast
	g.memory.mu.Unlock()
	if over {
		t.Error("more is held than there is")
	}
	for _, c := range slow {
		c.Close()
	}
	g.until(t, "all is given back", func() bool { return g.memory.used == 0 && len(g.memory.callers) == 0 })
}

// An answer that its caller does not read is cut when another caller needs the room.
func TestAnswersThatAreNotTaken(t *testing.T) {
	const size = 4 << 20
	g := crowd(t, 1)
	address := served(t, g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if Reserve(r.Context(), size) != nil {
			noRoom().Write(w)
			return
		}
		_, _ = w.Write(make([]byte, size))
	}), nil)
	// A fixed window: otherwise the kernel's buffers grow, and may hold a whole answer.
	narrow := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 64<<10)
		})
		return errors.Join(err, failed)
	}}
	get := func(caller string) *http.Response {
		c, err := narrow.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n\r\n", bearer(caller))
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		resp, err := http.ReadResponse(bufio.NewReaderSize(c, 512), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	var stuck []*http.Response
	for range 7 {
		stuck = append(stuck, get("r0-")) //nolint:bodyclose // get does
	}
	rest := g.memory.Acquire(as("r0"), g.memory.whole-int64(len(stuck))*size) // and more for the same caller
	if rest == nil {
		t.Fatal("not all was free")
	}
	defer rest.Release()
	resp := get("ops") //nolint:bodyclose // get does
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK || len(body) != size || err != nil {
		t.Errorf("%d, %d bytes, %v", resp.StatusCode, len(body), err)
	}
	cut := 0
	for _, resp := range stuck {
		if body, err := io.ReadAll(resp.Body); len(body) < size || err != nil {
			cut++
		}
	}
	if cut != 1 {
		t.Errorf("%d answers were cut, want 1", cut)
	}
}

// Only work in progress is cut: once a reservation has been given back its connection belongs to another call.
func TestPoolDoesNotCutReleasedReservations(t *testing.T) {
	p := NewPool(100, 100, 0)
	over := false
	late := p.Acquire(as("greedy"), 30)
	late.Cuttable(func() {
		if over {
			t.Error("a hold is cut that was given back")
		}
	})
	// This call is the larger one, and is cut first. The other one ends in the meantime.
	p.Acquire(as("greedy"), 40).Cuttable(func() {
		late.Release()
		over = true
	})
	p.Acquire(as("greedy"), 28)
	p.Acquire(as("good"), 50)
	if !over {
		t.Fatal("nothing was cut")
	}
}

// A request for more than there is delays no other: neither a request within its caller's minimum, nor one whose
// caller would hold less.
func TestLargeRequestsToAPoolDelayNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(100, 100, time.Second)
		p.least = 3
		p.Acquire(as("busy"), 50)
		for range 3 {
			go p.Acquire(as("large"), 60)
		}
		synctest.Wait()
		began := time.Now()
		if p.Acquire(as("small"), 3) == nil || p.Acquire(as("good"), 40) == nil {
			t.Error("there is no room")
		}
		if waited := time.Since(began); waited > 0 {
			t.Errorf("they waited %v", waited)
		}
		time.Sleep(time.Second) // in the bubble: those that wait give up
	})
}

// If a waiter gives up, those behind it are served.
func TestPoolServesWhenOneGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(100, 100, time.Hour)
		p.Acquire(as("a"), 50)
		ctx, cancel := context.WithCancel(as("b"))
		go p.Acquire(ctx, 60)
		synctest.Wait()
		served := make(chan *Reservation, 1)
		go func() { served <- p.Acquire(as("a"), 50) }()
		synctest.Wait()
		began := time.Now()
		cancel()
		if <-served == nil || time.Since(began) > 0 {
			t.Errorf("it was served after %v", time.Since(began))
		}
	})
}

// If a reservation becomes cuttable while another caller waits, it is cut then.
func TestPoolCutsReservationsThatBecomeCuttable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool(100, 100, time.Second)
		h := p.Acquire(as("greedy"), 100)
		served := make(chan *Reservation, 1)
		go func() { served <- p.Acquire(as("good"), 40) }()
		synctest.Wait()
		began := time.Now()
		h.Cuttable(func() { go h.Release() })
		if <-served == nil || time.Since(began) > 0 {
			t.Errorf("it was served after %v", time.Since(began))
		}
	})
}

// People of one tenant share the tenant's part, whatever other groups each of them is in: those add no parts.
// The limits of calls are shared in the same way.
func TestPoolOfPeopleInSeveralGroups(t *testing.T) {
	p := NewPool(8, 8, time.Second)
	var cut int
	for i, name := range []string{"billing", "billing+shop", "billing+ops+shop", "billing+ops"} {
		for range 2 {
			h := p.Acquire(as(name), 1)
			if h == nil {
				t.Fatalf("caller %d has nothing", i)
			}
			h.Cuttable(func() { cut++; go h.Release() })
		}
	}
	for i := range 4 { // half of it, beside one caller and not four
		if p.Acquire(as("other"), 1) == nil {
			t.Fatalf("another caller has %d of 8", i)
		}
	}
	if cut != 4 {
		t.Errorf("%d were cut, want 4", cut)
	}
}

// Work that goes on after a call, such as a job, uses the caller's part of the memory, and gives it back when
// it ends.
func TestOutlive(t *testing.T) {
	p := NewPool(8, 8, 0)
	call := withCall(t.Context(), &call{caller: Caller{Name: "a"}, request: "r1"})
	callOf(call).memory = p.Reservation(call)
	life, release := Outlive(call)
	callOf(call).memory.Release() // the call is over
	if c, _ := CallerOf(life); c.Name != "a" || RequestOf(life) != "r1" {
		t.Errorf("%+v, %q", c, RequestOf(life))
	}
	if Reserve(life, 6) != nil || Reserve(life, 6) == nil {
		t.Error("a job has other room than the pool has")
	}
	GiveBack(life, 6)
	if Reserve(life, 8) != nil {
		t.Error("what was given back is not there")
	}
	release()
	if p.used != 0 {
		t.Errorf("%d are held for ever", p.used)
	}
	if life, release := Outlive(t.Context()); life == nil || release == nil {
		t.Error("no call: nothing outlives it")
	}
}
