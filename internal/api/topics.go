package api

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/timer"
)

// Topic is a served topic.
type Topic struct {
	Partitions int32
	MaxBytes   int  // of a record
	Delay      bool // it is a fixed-delay topic, and not a request topic
	// DeadLetters and Events are the names of those topics; Events is empty if there is none.
	DeadLetters, Events string
	// Rules check requests before they are written; nil: only their owner checks them.
	Rules Rules
}

// Rights are a caller's rights. The guard of package access, which stands in front of the API, provides them. A nil
// function allows everything.
type Rights struct {
	// May returns the reason why a caller may not do something with an ID of a request topic, or with all IDs that
	// begin with it; nil: it may. An empty topic means the whole service.
	May func(ctx context.Context, role access.Role, topic, id string) error
	// Some returns the reason why a caller may not do something with any ID of a request topic.
	Some func(ctx context.Context, role access.Role, topic string) error
	// Grants returns the caller's rights; nil: it may do everything.
	Grants func(ctx context.Context) []access.Grant
	// Caller returns the caller's name.
	Caller func(ctx context.Context) string
}

// topics holds the served topics and the rights of callers to them.
type topics struct {
	all         map[string]Topic
	rights      Rights
	partitionOf func(id []byte, n int32) int32
}

// caller returns the name of the caller.
func (t *topics) caller(ctx context.Context) string {
	if t.rights.Caller == nil {
		return ""
	}
	return t.rights.Caller(ctx)
}

// may returns nil if the caller may do something, otherwise a problem.
func (t *topics) may(ctx context.Context, role access.Role, topic, id string) error {
	if t.rights.May == nil {
		return nil
	}
	if err := t.rights.May(ctx, role, topic, id); err != nil {
		return problem(http.StatusForbidden, ReasonForbidden, "%v", err)
	}
	return nil
}

// topic returns a request topic, if it is served and the caller may use it in this way.
func (t *topics) topic(ctx context.Context, role access.Role, name, id string) (Topic, error) {
	if err := t.may(ctx, role, name, id); err != nil {
		return Topic{}, err
	}
	return t.served(name)
}

// mayAny returns nil if the caller may use some IDs of a topic, otherwise a problem.
func (t *topics) mayAny(ctx context.Context, role access.Role, name string) error {
	if t.rights.Some == nil {
		return nil
	}
	if err := t.rights.Some(ctx, role, name); err != nil {
		return problem(http.StatusForbidden, ReasonForbidden, "%v", err)
	}
	return nil
}

func (t *topics) served(name string) (Topic, error) {
	topic, ok := t.all[name]
	if !ok || topic.Delay {
		return Topic{}, problem(http.StatusNotFound, ReasonNoTopic,
			"%.100q is none of the request topics that are served: see /v1/topics", name)
	}
	return topic, nil
}

// at returns the partition of an ID.
func (t *topics) at(name string, topic Topic, id []byte) timer.TopicPartition {
	return timer.TopicPartition{Topic: name, Partition: t.partitionOf(id, topic.Partitions)}
}

// largest returns the size of the largest body, as JSON, that any request topic takes.
func (t *topics) largest() int64 {
	n := 0
	for _, topic := range t.all {
		if !topic.Delay {
			n = max(n, topic.MaxBytes)
		}
	}
	return int64(n)*maxJSONFactor + 64<<10
}

// withLetters returns a topic with dead letters, which is a request topic or a fixed-delay topic, if the caller may
// use it in this way.
func (t *topics) withLetters(ctx context.Context, role access.Role, name, id string) (Topic, error) {
	if topic := t.all[name]; topic.Delay {
		return topic, t.may(ctx, role, name, id)
	}
	return t.topic(ctx, role, name, id)
}

// withEvents returns a request topic that has events, if the caller may see the events of an ID, or of all IDs with a
// prefix.
func (t *topics) withEvents(ctx context.Context, name, id string) (Topic, error) {
	topic, err := t.topic(ctx, access.Read, name, id)
	if err == nil && topic.Events == "" {
		err = problem(http.StatusConflict, ReasonNoEvents, "%s writes no events: start the instances with --events",
			name)
	}
	return topic, err
}

// Caller is the maker of a call, with its rights.
type Caller struct {
	Name    string  `json:"name" doc:"Its name in the file of callers."`
	Service bool    `json:"service" doc:"It may see the whole service: getCluster."`
	Rights  []Right `json:"rights" nullable:"false" doc:"By topic and prefix. A right to all IDs of a topic has no prefix, and comes first."`

	Calendars []CalendarRight `json:"calendars" nullable:"false" doc:"Rights to calendars."`
}

// CalendarRight is a caller's role for calendars.
type CalendarRight struct {
	Calendar string `json:"calendar" doc:"A name, the beginning of names and a *, or * for all."`
	Role     string `json:"role" enum:"read,admin" doc:"admin includes read."`
}

// Right is a caller's role for IDs of a request topic.
type Right struct {
	Topic  string `json:"topic"`
	Prefix string `json:"prefix,omitempty" doc:"Prefix of the IDs; empty: all IDs."`
	Role   string `json:"role" enum:"read,write,admin" doc:"Each includes those before it."`
}

// registerCaller registers the operation by which callers see their own rights.
func (t *topics) registerCaller(h huma.API) {
	op := operation("service", http.MethodGet, "/v1/caller", "getCaller", "See the caller's rights",
		"Its rights to request topics that are served.")
	reads(h, op, func(ctx context.Context, _ *struct{}) (*Caller, error) {
		grants := []access.Grant{{Role: access.Admin, Topic: "*"}}
		if t.rights.Grants != nil {
			grants = t.rights.Grants(ctx)
		}
		return &Caller{t.caller(ctx), t.may(ctx, access.Read, "", "") == nil, t.rightsOf(grants),
			calendarRights(grants)}, nil
	})
}

// calendarRights returns the rights that grants give to calendars.
func calendarRights(grants []access.Grant) []CalendarRight {
	roles := make(map[string]access.Role) // by names
	for _, g := range grants {
		if names, ok := g.Calendars(); ok {
			roles[names] = max(roles[names], g.Role)
		}
	}
	all := []CalendarRight{}
	for _, names := range slices.Sorted(maps.Keys(roles)) {
		role := access.Read // for Write too
		if roles[names] == access.Admin {
			role = access.Admin
		}
		all = append(all, CalendarRight{names, role.String()})
	}
	return all
}

// rightsOf returns the rights that grants give to the served request topics, without those that a wider right
// includes.
func (t *topics) rightsOf(grants []access.Grant) []Right {
	all := []Right{}
	for _, name := range slices.Sorted(maps.Keys(t.all)) {
		if t.all[name].Delay {
			continue
		}
		roles := make(map[string]access.Role) // by prefix
		for _, g := range grants {
			if g.Covers(name) {
				roles[g.IDPrefix] = max(roles[g.IDPrefix], g.Role)
			}
		}
		for prefix, role := range roles {
			included := false
			for other, its := range roles {
				included = included || other != prefix && strings.HasPrefix(prefix, other) && its >= role
			}
			if !included {
				all = append(all, Right{name, prefix, role.String()})
			}
		}
	}
	slices.SortFunc(all, func(a, b Right) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Prefix, b.Prefix))
	})
	return all
}

// Rules check a request before it is written, so that a mistake costs an error response and not a dead letter. The
// owner still decides: it may have other settings, and only the log shows which timers are pending, whether a
// condition holds, and how much of a quota is left.
type Rules interface {
	// Reject returns the reason why an owner with the settings of this instance would reject a request that is
	// written to a partition now, independently of the rest of the log; nil if it would not.
	Reject(partition int32, r *route.Request) *timer.Refusal
}

// judge returns the problem of a request that an owner would reject; nil if it would not.
func (t *Topic) judge(partition int32, r *route.Request) error {
	if t.Rules == nil {
		return nil
	}
	if no := t.Rules.Reject(partition, r); no != nil {
		return problem(statusOf(no.Reason), no.Reason, "%s", no.Detail)
	}
	return nil
}
