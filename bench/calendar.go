package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/audit/history"
)

// CalendarConfig measures how long pending timers take to follow a changed calendar, and how late others are meanwhile.
// It starts an instance of its own, which writes events, because they say when a timer is rescheduled.
type CalendarConfig struct {
	Common
	Beside
	Pending int // recurring timers that name the calendar; the change moves a tenth of them
}

// DefaultCalendar returns the usual workload.
func DefaultCalendar() CalendarConfig {
	c := CalendarConfig{Common: DefaultCommon(), Beside: defaultBeside(), Pending: 1_000_000}
	c.Local, c.Events = true, true
	return c
}

func (cc *CalendarConfig) check() error {
	return errors.Join(cc.checkOwn(), cc.Beside.check(), between("pending", movedOneIn, MaxTimers, cc.Pending),
		between("rounds", 1, 1, cc.Rounds))
}

const (
	// The calendar of the run, and the time zone of it and of its timers.
	calendarName, calendarZone = "bench", "Europe/Berlin"
	// One of movedOneIn timers has its next occurrence on the day that the change excludes.
	movedOneIn = 10
	// daysAhead is when the first of them is due: not within the run.
	daysAhead = 3
)

// follower is one run of the workload.
type follower struct {
	*run
	c   *CalendarConfig
	rep *Report
	day time.Time // the first on which timers are due, at midnight
}

func (cc *CalendarConfig) measure(ctx context.Context, r *run) error {
	f := &follower{run: r, c: cc, rep: r.report("calendar", "p99 by receipt meanwhile / before", "")}
	zone, err := time.LoadLocation(calendarZone)
	if err != nil {
		return fmt.Errorf("load the zone of the timers: %w", err)
	}
	y, m, d := time.Now().In(zone).Date()
	f.day, f.api = time.Date(y, m, d+daysAhead, 0, 0, 0, 0, zone), true
	if err := serveWarm(ctx, r); err != nil {
		return err
	}
	if err := f.put(ctx, f.day.AddDate(-1, 0, 0), http.StatusCreated); err != nil {
		return err
	}
	if err := f.scheduleRecurring(ctx); err != nil {
		return err
	}
	return f.change(ctx)
}

// put makes the calendar exclude one day.
func (f *follower) put(ctx context.Context, day time.Time, want int) error {
	rules := fmt.Sprintf(`{"zone": %q, "dates": [%q]}`, calendarZone, day.Format(time.DateOnly))
	_, err := drive(ctx, f.run, traffic{name: "PUT of the calendar", addr: f.serving.api, calls: 1, check: status(want),
		ask: func(int) request {
			return request{method: http.MethodPut, path: "/v1/calendars/" + calendarName, body: []byte(rules)}
		}})
	return err
}

// scheduleRecurring schedules the recurring timers: each daily at a minute of its own, from one of movedOneIn days on.
func (f *follower) scheduleRecurring(ctx context.Context) error {
	const minutes = 24 * 60
	return f.fill(ctx, f.rep, "recurring timers", offer{timers: f.c.Pending,
		due: func(i int, _ time.Time) int64 { return f.day.AddDate(0, 0, i%movedOneIn).UnixMilli() },
		headers: func(i int) []kgo.RecordHeader {
			minute := i / movedOneIn % minutes
			return []kgo.RecordHeader{
				{Key: waterclock.HeaderCron, Value: fmt.Appendf(nil, "%d %d * * *", minute%60, minute/60)},
				{Key: waterclock.HeaderZone, Value: []byte(calendarZone)},
				{Key: waterclock.HeaderNotOn, Value: []byte(calendarName)}}
		}})
}

// change changes the calendar while timers fire, and waits for the last timer that moves.
func (f *follower) change(ctx context.Context) error {
	var parts []part
	p, err := f.beside(ctx, f.c.Rate, f.c.Lives, func() error {
		parts = append(parts, quiet(ctx, f.c.Duration))
		meanwhile, err := f.follow(ctx)
		parts = append(parts, part{"meanwhile", meanwhile})
		return err
	})
	if err != nil {
		return err
	}
	return f.rep.beside(p, f.c.Rate, parts)
}

// follow changes the calendar, and returns the time from then until the last timer is rescheduled.
func (f *follower) follow(ctx context.Context) (w window, err error) {
	events := f.requests + ".waterclock.events"
	from, err := f.ends(ctx, events)
	if err != nil {
		return w, err
	}
	cl, err := f.newClient(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{events: from}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return w, err
	}
	defer cl.Close()
	defer f.profile("calendar")()
	w.from = time.Now()
	if err := f.put(ctx, f.day, http.StatusOK); err != nil {
		return w, err
	}
	answered, wanted, seen := time.Now(), f.c.Pending/movedOneIn, 0
	bar := f.bar("rescheduled", wanted)
	for seen < wanted && ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		fetches.EachRecord(func(rec *kgo.Record) {
			if e, err := waterclock.ParseEvent(rec); err == nil && e.Type == waterclock.EventRescheduled {
				seen++
			}
		})
		_ = bar.Set(min(seen, wanted))
	}
	w.to = time.Now()
	_ = bar.Finish()
	p := f.rep.add(&Phase{Name: "rescheduled",
		Note: fmt.Sprintf("PUT answered after %d ms", answered.Sub(w.from).Milliseconds()),
		Exact: history.Counts{Scheduled: wanted, Received: seen, Lost: max(0, wanted-seen),
			Altered: max(0, seen-wanted)}})
	p.perSecond(seen, w.from, w.to)
	return w, p.Exact.Err(p.Name)
}
