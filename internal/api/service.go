package api

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/calendar"
)

// Cluster describes the service as a whole.
type Cluster struct {
	Asked            string                  `json:"asked" doc:"Name of the instance that responds."`
	Instances        []route.Instance        `json:"instances" nullable:"false" doc:"This one first, then all that were the last to own a partition. Instances that own none are unknown to others."`
	Partitions       []OwnedPartition        `json:"partitions" nullable:"false" doc:"All partitions of the request topics, and the owned ones of the fixed-delay topics."`
	Unhealthy        []route.UnhealthyTarget `json:"unhealthyTargets" nullable:"false" doc:"Target partitions to which some instance cannot write now."`
	Deferred         []route.DeferredTarget  `json:"deferredTargets,omitempty" doc:"Targets whose rate keeps timers waiting."`
	MissingCalendars []route.MissingCalendar `json:"missingCalendars,omitempty" doc:"Calendars that timers name and that do not exist."`
	Pending          int64                   `json:"pending" doc:"Pending timers of all known partitions."`
	OldestSecs       float64                 `json:"oldestDueSeconds" doc:"How long the oldest timer of all known partitions has been due."`
	Unknown          int                     `json:"oldestDueUnknownPartitions" doc:"Number of partitions whose overdue timers are unknown."`
}

// OwnedPartition is a partition with its owner.
type OwnedPartition struct {
	Owner string `json:"owner,omitempty" doc:"Name of its owner; empty if unknown."`
	route.PartitionStatus
}

// TopicInfo is a request topic.
type TopicInfo struct {
	Topic      string `json:"topic"`
	Partitions int32  `json:"partitions"`
	MaxBytes   int    `json:"maxMessageBytes" doc:"The largest size of a request, as a record."`
}

// TopicList are request topics.
type TopicList struct {
	Topics []TopicInfo `json:"topics" nullable:"false" doc:"Topics that the caller may read."`
}

// Occurrences explains a recurrence.
type Occurrences struct {
	Explanation string      `json:"explanation" doc:"The recurrence in words."`
	Zone        string      `json:"zone"`
	Next        []time.Time `json:"next" nullable:"false" doc:"The next occurrences, without jitter."`
	Latest      []time.Time `json:"latest,omitempty" nullable:"false" doc:"With jitter: the last instant at which each of next may be due. Which one it is depends on the timer's ID and its request."`
	Changed     []Changed   `json:"changed,omitempty" nullable:"false" doc:"Those that are not when the recurrence alone would have them, in the order of next: of those that calendars exclude, at most 20 before each of next."`
	More        bool        `json:"changedMore,omitempty" doc:"Calendars exclude others, which changed leaves out."`
}

// Changed is an occurrence that does not come at the time that its recurrence names.
type Changed struct {
	For  string     `json:"for" doc:"Date and time of day that the recurrence names, in its zone."`
	Next *time.Time `json:"next,omitempty" doc:"When it comes instead; if absent, it does not come."`
	Why  string     `json:"why" doc:"As in: the clock skips it."`

	Calendar string `json:"calendar,omitempty" doc:"The calendar that excludes it."`
}

// maxExcluded is how many occurrences that calendars exclude are listed before each other one.
const maxExcluded = 20

// service has the operations that are not about timers.
type service struct {
	*common
	calendars *calendarsOf
}

func (s *service) register(h huma.API) {
	reads(h, operation("service", http.MethodGet, "/v1/cluster", "getCluster", "See instances and partitions"),
		func(ctx context.Context, _ *struct{}) (*Cluster, error) {
			if err := s.topics.may(ctx, access.Read, "", ""); err != nil {
				return nil, err
			}
			return s.cluster(ctx), nil
		})
	reads(h, operation("service", http.MethodGet, "/v1/topics", "listTopics", "List the request topics"),
		func(ctx context.Context, _ *struct{}) (TopicList, error) {
			l := TopicList{Topics: []TopicInfo{}}
			for _, name := range slices.Sorted(maps.Keys(s.topics.all)) {
				if t := s.topics.all[name]; !t.Delay && s.topics.may(ctx, access.Read, name, "") == nil {
					l.Topics = append(l.Topics, TopicInfo{name, t.Partitions, t.MaxBytes})
				}
			}
			return l, nil
		})
	s.registerNext(h)
}

func (s *service) registerNext(h huma.API) {
	next := operation("service", http.MethodGet, "/v1/next", "nextOccurrences", "See when a recurrence comes next",
		"By the rules of time zones, and the calendars, of the instance that is asked. Give one of cron and every, "+
			"or at alone.")
	reads(h, next, func(ctx context.Context, in *struct {
		Cron   string `query:"cron" maxLength:"1024" doc:"5 or 6 fields, or a name such as @daily."`
		Every  string `query:"every" maxLength:"64" doc:"A duration or, with zone, a period such as P1M."`
		Zone   string `query:"zone" doc:"IANA name of a time zone; if absent, UTC."`
		At     string `query:"at" doc:"When it begins, as timer-at; if absent, at from, and for every one interval later."`
		Jitter string `query:"jitter" maxLength:"64" doc:"As timer-jitter: each is delayed by less than this."`
		NotOn  string `query:"not-on" maxLength:"2048" doc:"As timer-not-on: names of calendars that the caller may read, with commas between them."`
		Shift  string `query:"shift" doc:"As timer-shift: skip, next or previous."`
		N      int    `query:"n" minimum:"0" maximum:"1000" default:"10" doc:"The number of occurrences."`
		From   string `query:"from" doc:"After this time: RFC 3339 with a zone, or Unix milliseconds; if absent, now."`
	}) (out Occurrences, err error) {
		from, err := anyInstant("from", in.From)
		if err != nil {
			return out, err
		}
		if in.From == "" {
			from = s.now().UnixMilli()
		}
		w := calendar.Wish{Cron: in.Cron, Every: in.Every, Zone: in.Zone, Jitter: in.Jitter, NotOn: in.NotOn,
			Shift: in.Shift}
		if in.At != "" {
			at, err := anyInstant("at", in.At)
			if err != nil {
				return out, err
			}
			w.At = &at
		}
		if w.NotOn != "" {
			if w.Calendars, err = s.calendars.readable(ctx, w.NotOn); err != nil {
				return out, err
			}
		}
		p, err := previewOf(&w, from)
		if err != nil {
			return out, err
		}
		return occurrences(ctx, p, from, in.N), nil
	})
}

// occurrences returns the n occurrences after a time, in Unix milliseconds; fewer if ctx ends.
func occurrences(ctx context.Context, p *calendar.Preview, from int64, n int) Occurrences {
	const layout = "2006-01-02T15:04:05"
	loc, listed := p.Location(), from // everything that calendars exclude up to then is listed
	out := Occurrences{Explanation: p.Explain(), Zone: loc.String(), Next: []time.Time{}}
	for ; n > 0 && ctx.Err() == nil; n-- {
		o, ok := p.After(from)
		until := max(o.Scheduled, o.Nominal)
		excluded, more := p.Excluded(listed, until, maxExcluded)
		for _, x := range excluded {
			c := Changed{For: instantOf(x.Nominal).In(loc).Format(layout), Calendar: x.Calendar,
				Why: "calendar " + x.Calendar + " excludes it"}
			if x.Comes {
				c.Next = new(instantOf(x.To).In(loc))
			}
			out.Changed = append(out.Changed, c)
		}
		out.More, listed = out.More || more, max(listed, until)
		if !ok {
			break
		}
		next := time.UnixMilli(o.Scheduled).In(loc)
		out.Next = append(out.Next, next)
		if p.Jitter > 0 {
			out.Latest = append(out.Latest, instantOf(p.Latest(o)).In(loc))
		}
		if reading, skipped := p.Skipped(o); skipped {
			out.Changed = append(out.Changed,
				Changed{For: reading.Format(layout), Next: &next, Why: "the clock skips it"})
		}
		from = o.Scheduled
	}
	return out
}

// anyInstant is instant for what may also be long ago, such as the first of the birthdays. It takes the years 0 to
// 9999.
func anyInstant(name, text string) (ms int64, err error) {
	if t, failed := time.Parse(time.RFC3339Nano, text); failed == nil {
		ms = t.UnixMilli()
	} else if ms, err = instant(name, text); err != nil {
		return 0, err
	}
	if ms < firstInstant || ms > lastInstant {
		return 0, invalid("%s is %.60q, needs the years 0 to 9999", name, text)
	}
	return ms, nil
}

// previewOf returns a preview. One of cron and every must be given, or at alone.
func previewOf(w *calendar.Wish, from int64) (*calendar.Preview, error) {
	switch {
	case w.Cron != "" && w.Every != "":
		return nil, invalid("give one of cron and every")
	case w.Cron == "" && w.Every == "" && w.At == nil:
		return nil, invalid("give one of cron and every, or at alone")
	}
	p, fault := w.Preview(from)
	if fault == nil {
		return p, nil
	}
	text := map[string]string{"cron": w.Cron, "every": w.Every, "zone": w.Zone, "jitter": w.Jitter, "not-on": w.NotOn,
		"shift": w.Shift}[fault.Field]
	reason := map[string]string{"cron": "bad-cron", "every": "bad-interval", "zone": "unknown-zone",
		"jitter": "bad-jitter", "not-on": "bad-not-on", "shift": "bad-shift"}[fault.Field]
	if fault.Unknown {
		reason = "unknown-calendar"
	}
	return nil, problem(http.StatusBadRequest, reason, "%s is %.60q, %s", fault.Field, text, fault.Says)
}

// cluster merges the answers of all instances.
func (s *service) cluster(ctx context.Context) *Cluster {
	instances, owners := s.asker.Instances(ctx)
	other := "unowned"
	if owners == nil { // the directory could not be read
		other = "unknown"
	}
	c := &Cluster{Asked: instances[0].Name, Instances: instances, Unhealthy: []route.UnhealthyTarget{}}
	known := make(map[timer.TopicPartition]OwnedPartition)
	seen := make(map[[2]string]bool)
	for i := range instances {
		in := &instances[i]
		for _, p := range in.Partitions {
			at := timer.TopicPartition{Topic: p.Topic, Partition: p.Partition}
			if _, twice := known[at]; !twice || p.State == "live" {
				known[at] = OwnedPartition{in.Name, p}
			}
		}
		for _, u := range in.Unhealthy {
			if k := [2]string{u.Topic, u.Partition}; !seen[k] {
				seen[k], c.Unhealthy = true, append(c.Unhealthy, u)
			}
		}
		for _, d := range in.Deferred {
			c.Deferred, _ = route.AddDeferred(c.Deferred, d)
		}
		for _, m := range in.MissingCalendars {
			c.MissingCalendars = route.AddMissingCalendar(c.MissingCalendars, m)
		}
		in.Partitions, in.Unhealthy, in.Deferred, in.MissingCalendars = nil, nil, nil, nil // they are shown elsewhere
	}
	slices.SortFunc(c.MissingCalendars, func(x, y route.MissingCalendar) int {
		return cmp.Or(cmp.Compare(x.Calendar, y.Calendar), cmp.Compare(x.Topic, y.Topic))
	})
	slices.SortFunc(c.Deferred, func(x, y route.DeferredTarget) int {
		return cmp.Or(cmp.Compare(x.Target, y.Target), cmp.Compare(x.Topic, y.Topic))
	})
	for at, owner := range owners {
		if _, told := known[at]; !told {
			known[at] = OwnedPartition{owner.Process, route.PartitionStatus{Topic: at.Topic, Partition: at.Partition,
				State: "unknown", OldestUnknown: true}}
		}
	}
	for name, t := range s.topics.all {
		for p := range t.Partitions {
			at := timer.TopicPartition{Topic: name, Partition: p}
			if _, told := known[at]; !told && !t.Delay {
				known[at] = OwnedPartition{"", route.PartitionStatus{Topic: name, Partition: p, State: other,
					OldestUnknown: true}}
			}
		}
	}
	c.Partitions = make([]OwnedPartition, 0, len(known))
	for _, p := range known {
		c.Partitions = append(c.Partitions, p)
		c.Pending += p.Pending
		c.OldestSecs = max(c.OldestSecs, p.OldestDueSecs)
		if p.OldestUnknown {
			c.Unknown++
		}
	}
	slices.SortFunc(c.Partitions, func(x, y OwnedPartition) int {
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
	})
	return c
}
