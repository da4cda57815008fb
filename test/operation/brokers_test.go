package operation

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/test/rig"
)

// gate is a way to the brokers that can be shut: connections end, and none can be opened. mu guards what follows it.
type gate struct {
	mu    sync.Mutex
	shut  bool
	conns []net.Conn
}

func (g *gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		addr = "127.0.0.1:1" // refuses, as does the machine of a broker that is gone
	}
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err == nil {
		g.conns = append(g.conns, c)
	}
	return c, err
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut = shut; shut {
		for _, c := range g.conns {
			c.Close()
		}
		g.conns = nil
	}
}

// When the only broker dies the instance is not ready once the session timeout is over, and says why. Its API says so
// too, and not that partitions move. When the broker is back it is ready by itself.
func TestNotReadyWhenNoBrokerAnswers(t *testing.T) {
	t.Parallel()
	s, g := fake(t, 2), &gate{}
	s.cfg.SessionTimeout, s.o.Dial = 2*time.Second, g.dial
	get := s.withAPI()
	s.serve()
	g.set(true)
	took := s.until("not ready", func() bool {
		status, _ := s.Readyz()
		return status == http.StatusServiceUnavailable
	})
	if took > 2*s.cfg.SessionTimeout {
		t.Errorf("not ready after %s only", took)
	}
	s.notReady("no broker has answered for group " + s.cfg.Group)
	s.says("not ready: no broker has answered")
	var p api.Problem
	s.until("the API says that Kafka cannot be reached", func() bool {
		p = api.Problem{}
		return get("/v1/topics/"+s.Requests+"/timers/a", &p) == http.StatusServiceUnavailable &&
			p.Reason == api.ReasonKafka
	})
	for _, w := range []string{"Kafka cannot be reached: no broker", "Nothing fires meanwhile and nothing is lost"} {
		if !strings.Contains(p.Detail, w) {
			t.Errorf("%q lacks %q", p.Detail, w)
		}
	}
	s.until("/v1/cluster says it", func() bool {
		var is api.Cluster
		return get("/v1/cluster", &is) == http.StatusOK && strings.Contains(is.Instances[0].Problem, "no broker")
	})
	g.set(false)
	s.Ready(2, limit)
	s.says("the brokers answer again")
	s.until("the API answers", func() bool {
		return get("/v1/topics/"+s.Requests+"/timers/a", new(api.Problem)) == http.StatusNotFound
	})
	for words, most := range map[string]int{"not ready: no broker has answered": 1, "the brokers answer again": 1,
		"broker down": 1, "cannot check for hanging transactions": 0, "group manage loop errored": 0} {
		if n := len(s.log.Lines(words)); n > most {
			t.Errorf("%q is said %d times for one loss", words, n)
		}
	}
}

// deafConn is a connection to a broker that takes whatever is sent once it is shut, and answers nothing.
type deafConn struct {
	net.Conn
	shut *atomic.Bool
}

// Write implements net.Conn.
func (d deafConn) Write(b []byte) (int, error) {
	if d.shut.Load() {
		return len(b), nil
	}
	return d.Conn.Write(b)
}

// An instance ends soon although no broker answers any more and timers fall due. Until then /readyz says what it does.
func TestStopWhileNoBrokerAnswers(t *testing.T) {
	t.Parallel()
	s := fake(t, 2)
	var shut atomic.Bool
	s.o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return deafConn{c, &shut}, err
	}
	s.withAPI()
	s.serve()
	s.schedule("id", 200, time.Second)
	s.counts(200, "waterclock_outcomes_total", "outcome", "scheduled")
	shut.Store(true)
	start := time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop() }()
	s.phase("stopping")
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	// Leaving the group, the API's calls and aborts beside the lanes have a few seconds each.
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}

// A broker dies while an instance checks its topics at the start: it asks again.
func TestConnectionThatBreaksAtTheStart(t *testing.T) {
	t.Parallel()
	const cuts = 12 // more than the client itself tries again
	s := fake(t, 2)
	var asked atomic.Int32
	s.Fake.ControlKey(int16(kmsg.DescribeConfigs), func(kmsg.Request) (kmsg.Response, error, bool) {
		s.Fake.KeepControl()
		if asked.Add(1) > cuts {
			return nil, nil, false
		}
		return nil, io.EOF, true
	})
	s.serve()
	if n := asked.Load(); n <= cuts {
		t.Errorf("topics were asked about %d times, the first %d without an answer", n, cuts)
	}
}

// The committed offset waits for the slow end of a transaction, and whoever acquires the partition may not look at
// Kafka's own topic: it asks once, and waits.
func TestAcquisitionWaitsWithoutTheRightToRepair(t *testing.T) {
	t.Parallel()
	const offsets = "__consumer_offsets"
	s := fake(t, 2)
	unstable := s.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetFetch}, Err: kerr.UnstableOffsetCommit, Count: -1,
		When: func(r kmsg.Request) bool { return r.(*kmsg.OffsetFetchRequest).RequireStable }})
	looks := s.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: offsets,
		Err: kerr.TopicAuthorizationFailed, Count: -1})
	s.begin()
	s.until("a look at the group's offsets", func() bool { return looks.Hits() > 0 })
	await.For(t, time.Second) // it would look five times
	unstable.Remove()
	s.Ready(2, limit)
	if n := looks.Hits(); n > 4 { // both partitions may ask at the same moment, and a client again
		t.Errorf("asked %d times", n)
	}
	if again := s.log.Lines("acquiring the partition again"); len(again) > 0 {
		t.Errorf("began again: %s", again)
	}
}

// Metrics show a transaction of another producer that is open on a request topic, and a changelog that accepts nothing.
func TestTroublesAreShown(t *testing.T) {
	t.Parallel()
	s := fake(t, 2).serves()
	shown := func(name string, labels ...string) {
		t.Helper()
		s.until(name, func() bool { return s.Metric(name, labels...) > 0 })
	}
	open := s.Manual(kgo.TransactionalID("another"))
	if err := open.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	rig.Send(t, open, s.Cancel("id"))
	shown("waterclock_intake_held_seconds")
	if err := open.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}

	refuses := s.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topics.Changelog(s.Requests),
		Err: kerr.NotEnoughReplicas, Count: -1})
	s.schedule("id", 1, limit)
	shown("waterclock_partitions", "state", "stalled")
	if refuses.Hits() == 0 {
		t.Error("the changelog has refused nothing")
	}
	refuses.Remove()
}
