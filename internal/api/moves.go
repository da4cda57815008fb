package api

import (
	"context"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// Moves has the parameters of a job that moves timers.
type Moves struct {
	Chosen
	By    string `query:"by" doc:"By how much each is moved, from its due time with jitter, as in 1h or -30m."`
	To    string `query:"to" doc:"When all of them are due, instead: RFC 3339 with a zone or Unix milliseconds."`
	Since string `query:"unchanged-since" doc:"The position of an earlier job: timers that were scheduled or moved since it began, by that job too, are spared."`
}

// move starts a job that moves timers. Unlike other jobs, such a job must not be repeated as it is: by=1h would move a
// timer twice. So it has a position, the ends of the request log's partitions, read before it writes its first request,
// and a later job with unchanged-since spares timers whose generation is at or behind that position. Then no timer is
// moved twice by the two, and no other is left out, however the first job ended:
//
//   - A request of the first job that is decided has an offset at or behind the position, and the timer has that
//     generation.
//   - A request that is in the log, but not decided when the later job reads the timer, comes before that job's request
//     for it. It is decided first, and changes the generation, so the condition of the later one is false.
//   - A request that reaches the log only behind that of the later job, from the connection of a process that was
//     killed, names a generation that is no longer pending. So does one that the first job itself has written twice.
//   - A request that never reaches the log leaves the generation as it was: before the position.
//
// A timer that recurs keeps its generation when it fires, so it is not left out because of that. The price: timers that
// others schedule while the first job runs are left to it alone. Positions are offsets, so they mean nothing once a
// topic was recreated, or has other partitions; the latter is refused.
//
// The later job needs the same filter and the same change, so each job shows both (Job.Query). The filter still chooses
// every timer that the first job has not moved, because those are as they were. It may choose one that was moved, or
// not, by its new due time; that is spared either way. A state in the filter is that of now.
//
// The later job has the position of the first one, so if it does not come to its end either, a third one spares what
// any of the two has moved. A position of its own would have the timers of the first job before it.
func (j *jobs) move(ctx context.Context, in *Moves) (*startedJob, error) {
	due, err := movesTo(in.By, in.To, in.DryRun)
	if err != nil {
		return nil, err
	}
	topic := j.topics.all[in.Topic]
	since, known := parsePosition(in.Since)
	switch {
	case in.Since == "":
	case in.DryRun:
		return nil, invalid("unchanged-since comes with dry-run, which cannot tell what has changed: leave out one " +
			"of them")
	case !known || since.First != 0 || topic.Partitions > 0 && int(topic.Partitions) != len(since.Next):
		return nil, invalid("unchanged-since is %.100q, needs the position of a job that moves timers of %.100q",
			in.Since, in.Topic)
	}
	steers := func(t *query.Timer) []timer.Header {
		if in.Since != "" && t.Ref().Generation() >= since.next(t.Partition) {
			return nil
		}
		at := waterclock.FormatInstant(instantOf(due(t.Due)).UnixMilli())
		return []timer.Header{{Key: waterclock.HeaderMove, Value: []byte(waterclock.True)},
			{Key: waterclock.HeaderAt, Value: []byte(at)}}
	}
	if in.To != "" {
		r := route.Request{ID: []byte(in.Topic), Headers: steers(&query.Timer{Timer: &timer.Timer{Offset: -1}})}
		if err := topic.judge(0, &r); err != nil {
			return nil, err
		}
	}
	show := Job{Action: "move", Position: in.Since, Query: in.asQuery("by", in.By, "to", in.To)}
	return j.start(ctx, show, &in.Chosen, steers)
}

// position returns the ends of the request log.
func (j *jobs) position(ctx context.Context, name string, topic Topic) (Position, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	bounds, err := j.logs.Bounds(ctx, name)
	return endsOf(bounds, 0, topic.Partitions), err
}

// movesTo returns the new due time for an old one, in Unix milliseconds, as one of two parameters says.
func movesTo(by, to string, dry bool) (func(due int64) int64, error) {
	switch {
	case (by == "") == (to == ""):
		return nil, invalid("give either by, as in by=1h, or to")
	case to != "":
		at, err := instant("to", to)
		return func(int64) int64 { return at }, err
	}
	d, err := span.ParseSigned(by)
	if err != nil {
		return nil, invalid("by is %.60q, needs a duration, such as 1h30m or -30m", by)
	}
	if d == 0 && !dry {
		return nil, invalid("by is %.60q, which moves nothing", by)
	}
	return func(due int64) int64 { return due + d.Milliseconds() }, nil
}
