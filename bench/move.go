package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/kit/child"
	"github.com/waterclock/waterclock/internal/node/ops"
)

// The events of a move.
const (
	moveQuiet = "nothing" // nothing happens, for comparison
	moveJoin  = "join"
	moveTerm  = "sigterm"
	moveDrain = "drain"
	moveKill  = "kill"
	movePause = "pause" // SIGSTOP, until the others have everything
	moveRoll  = "roll"  // each of the three is stopped and started again
)

func moveEvents() []string {
	return []string{moveQuiet, moveJoin, moveTerm, moveDrain, moveKill, movePause, moveRoll}
}

const (
	// maxInstances is the largest number of instances that run all the time.
	maxInstances = 20
	// moveAround is the time before and after each event that is measured with it.
	moveAround = 2 * time.Second
	// movePoll is the interval at which the owners of partitions are read.
	movePoll = 20 * time.Millisecond
)

// MoveConfig measures how long partitions are silent when they move between instances, and how that affects the other
// partitions. It starts instances of its own; Cluster.Standbys says how many standbys they keep.
type MoveConfig struct {
	Common
	Lives
	Instances int      // instances that run all the time; one more comes and goes
	Pending   int      // timers that stay pending
	Rate      float64  // timers a second that fire
	Cases     []string // events, in the order in which they happen
}

// DefaultMove returns the usual workload.
func DefaultMove() MoveConfig {
	c := MoveConfig{
		Common: DefaultCommon(), Lives: Lives{Least: 500 * time.Millisecond, Spread: 500 * time.Millisecond},
		Instances: 3, Pending: 2_000_000, Rate: 5_000, Cases: moveEvents(),
	}
	c.Local, c.Partitions = true, 12
	return c
}

func (mc *MoveConfig) check() error {
	errs := []error{mc.checkOwn(), mc.Lives.check(), between("instances", 1, maxInstances, mc.Instances),
		wantTimers(mc.Pending), between("rate", 1, MaxRate, mc.Rate)}
	for _, x := range mc.Cases {
		errs = append(errs,
			want(slices.Contains(moveEvents(), x), "cases", x, "some of "+strings.Join(moveEvents(), ",")))
	}
	return errors.Join(errs...)
}

// mover is one run of the workload.
type mover struct {
	*run
	c     *MoveConfig
	rep   *Report
	peers []*instance // running instances; the one that comes and goes is the last
	made  int         // number of started instances

	mu   sync.Mutex
	seen []arrival // guarded by mu
}

// arrival is one emission.
type arrival struct {
	at   time.Time
	late time.Duration
	from int // partition of the request
}

func (mc *MoveConfig) measure(ctx context.Context, r *run) (err error) {
	m := &mover{run: r, c: mc,
		rep: r.report(fmt.Sprintf("move, standbys %d, %d pending", r.cfg.Standbys, mc.Pending), "", "")}
	defer func() {
		for _, i := range m.peers {
			if i.Alive() {
				err = errors.Join(err, i.stop())
			}
		}
	}()
	for range m.c.Instances {
		if err := m.launchPeer(); err != nil {
			return err
		}
	}
	if err := m.calm(ctx); err != nil {
		return err
	}
	if err := r.scheduleFar(ctx, r.nextBatch(0), mc.Pending); err != nil {
		return err
	}
	if err := m.calm(ctx); err != nil {
		return err
	}
	m.receive = m.received
	p, err := m.beside(ctx, mc.Rate, mc.Lives, func() error {
		beats.Sleep(ctx, moveAround)
		for _, event := range mc.Cases {
			if err := m.event(ctx, event); err != nil {
				return fmt.Errorf("%s: %w", event, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	told := m.rep.add(&Phase{Name: p.name, Rate: mc.Rate})
	told.late(p.batch, window{})
	return told.verify(p.batch)
}

// received records the partition and the lateness of an emission.
func (m *mover) received(r history.Received) {
	a := arrival{at: r.At, from: -1}
	for _, h := range r.Record.Headers {
		switch h.Key {
		case waterclock.HeaderSource:
			part := strings.Split(string(h.Value), "/")
			a.from, _ = strconv.Atoi(part[max(0, len(part)-2)])
		case waterclock.HeaderDue:
			ms, _ := strconv.ParseInt(string(h.Value), 10, 64)
			a.late = r.At.Sub(time.UnixMilli(ms))
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = append(m.seen, a)
}

func (m *mover) launchPeer() error {
	return m.launchAt(filepath.Join(m.Dir, fmt.Sprint("data-", m.made)))
}

func (m *mover) launchAt(dir string) error {
	cfg := m.settings()
	cfg.DataDir = dir
	i, err := m.launch(cfg)
	if err == nil {
		m.made++
		m.peers = append(m.peers, i)
	}
	return err
}

// event measures one event. If the event needs a fourth instance, or needs that there is none, that is arranged first.
func (m *mover) event(ctx context.Context, name string) error {
	if fourth := name != moveQuiet && name != moveJoin && name != moveRoll; fourth != (len(m.peers) > m.c.Instances) {
		if fourth {
			if err := m.launchPeer(); err != nil {
				return err
			}
		} else if err := m.dismiss((*instance).stop); err != nil {
			return err
		}
		if err := m.calm(ctx); err != nil {
			return err
		}
		beats.Sleep(ctx, m.c.lead()+moveAround) // until late timers have fired
	}
	before, err := m.owners(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	sleepUntil(ctx, begin.Add(moveAround))
	moved := make(map[int]bool)
	if err := m.do(ctx, name, before, moved); err != nil {
		return err
	}
	end := time.Now()
	sleepUntil(ctx, end.Add(m.c.lead()+moveAround)) // until late timers have fired, too
	m.tell(name, begin, end.Add(moveAround), moved)
	return nil
}

// do makes an event happen, and returns when the group is calm again. It adds partitions that had another owner in
// between to moved.
func (m *mover) do(ctx context.Context, name string, before map[int]*instance, moved map[int]bool) (err error) {
	note := func() error {
		now, err := m.owners(ctx)
		for p, i := range now {
			if before[p] != i {
				moved[p] = true
			}
		}
		return err
	}
	last := m.peers[len(m.peers)-1]
	switch name {
	case moveQuiet:
		beats.Sleep(ctx, 5*time.Second)
		return nil
	case moveJoin:
		err = m.launchPeer()
	case moveTerm:
		err = m.dismiss((*instance).stop)
	case moveDrain:
		err = m.dismiss(func(i *instance) error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+i.http+"/leave?within=5m", nil)
			if err == nil {
				err = ops.AddToken(req, i.dir)
			}
			if err != nil {
				return err
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			return errors.Join(resp.Body.Close(), i.Wait())
		})
	case moveKill:
		err = m.dismiss(func(i *instance) error { i.kill(); return nil })
	case movePause:
		m.peers = m.peers[:m.c.Instances]
		err = last.Pause()
		if err == nil {
			err = m.calm(ctx)
		}
		err = errors.Join(err, note(), last.Signal(child.Continue))
		m.peers = append(m.peers, last)
	case moveRoll:
		for range m.c.Instances {
			dir := m.peers[0].dir
			if err := m.peers[0].stop(); err != nil {
				return err
			}
			m.peers = m.peers[1:]
			if err := errors.Join(m.launchAt(dir), m.calm(ctx), note()); err != nil {
				return err
			}
		}
	}
	return cmp.Or(err, m.calm(ctx), note())
}

// dismiss stops the last instance.
func (m *mover) dismiss(how func(*instance) error) error {
	last := m.peers[len(m.peers)-1]
	m.peers = m.peers[:len(m.peers)-1]
	return how(last)
}

// owners returns which instance serves each partition.
func (m *mover) owners(ctx context.Context) (map[int]*instance, error) {
	all := make(map[int]*instance)
	for _, i := range m.peers {
		_, live, err := askReady(ctx, i.http)
		if err != nil {
			return nil, err
		}
		for _, p := range live {
			all[p] = i
		}
	}
	return all, nil
}

// calm waits until all partitions are live and evenly spread, with all standbys.
func (m *mover) calm(ctx context.Context) error {
	what := ""
	return poll(ctx, movePoll, func() (bool, error) {
		live, copies, least, most := 0, 0, m.partitions, 0
		for _, i := range m.peers {
			ready, partitions, _ := askReady(ctx, i.http)
			if !ready {
				what = i.http + " is not ready"
				return false, nil
			}
			n := len(partitions)
			live, least, most = live+n, min(least, n), max(most, n)
			samples, _ := i.samples(ctx, "waterclock_standby_partitions") // without a response copies are missing
			for labels, n := range samples {
				if strings.Contains(labels, `"behind"`) && n > 0 {
					what = "copies are behind"
					return false, nil
				}
				copies += int(n)
			}
		}
		what = fmt.Sprintf("%d partitions live, %d to %d each, %d copies", live, least, most, copies)
		wanted := m.partitions * min(m.cfg.Standbys, len(m.peers)-1)
		return live == m.partitions && most <= least+1 && copies >= wanted, nil
	}, func() error { return fmt.Errorf("wait for calm: %s: %w", what, ctx.Err()) })
}

// tell reports a span of time, for the partitions that moved and for the others.
func (m *mover) tell(event string, from, to time.Time, moved map[int]bool) {
	for _, of := range []bool{true, false} {
		var parts []int
		for p := range m.partitions {
			if moved[p] == of {
				parts = append(parts, p)
			}
		}
		if len(parts) == 0 {
			continue
		}
		name := event + ", untouched"
		if of {
			name = event + ", moved"
		}
		late, silence, n := m.within(from, to, parts)
		m.rep.add(&Phase{
			Name: name, Rate: m.c.Rate, Seconds: to.Sub(from).Seconds(), ByReceipt: late,
			Silence: float64(silence.Milliseconds()),
			Exact:   history.Counts{Scheduled: n, Received: n},
			Note:    fmt.Sprintf("%d partitions, silent for %s at most", len(parts), silence.Round(time.Millisecond)),
		})
	}
}

// within returns how late the emissions of some partitions were in a span of time, the longest time in which one of
// these partitions was silent, and the number of emissions.
func (m *mover) within(from, to time.Time, parts []int) (*Lateness, time.Duration, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, silence := make(map[int]time.Time), time.Duration(0)
	var late []int32
	for _, p := range parts {
		last[p] = from
	}
	for _, a := range m.seen {
		before, is := last[a.from]
		if !is || a.at.Before(from) || a.at.After(to) {
			continue
		}
		late = append(late, int32(a.late.Microseconds()))
		silence, last[a.from] = max(silence, a.at.Sub(before)), a.at
	}
	for _, at := range last {
		silence = max(silence, to.Sub(at))
	}
	return latenessOf(late, 1000), silence, len(late)
}
