package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kit/tasks"
	"github.com/waterclock/waterclock/internal/timer"
	"github.com/waterclock/waterclock/internal/timer/query"
)

// Asker asks the owner of a partition. Outside unit tests it is a route.Router.
type Asker interface {
	Ask(ctx context.Context, c *route.Call) (route.Answer, error)
	Produce(ctx context.Context, at timer.TopicPartition, requests []route.Request) []route.Written
	Find(ctx context.Context, topic string, id []byte) *query.Timer
	Instances(ctx context.Context) ([]route.Instance, map[timer.TopicPartition]route.Owner)
	Job(ctx context.Context, id string, stop bool) (*Job, error)
	AllJobs(ctx context.Context) ([]Job, []route.Instance, error)
	http.Handler // answers other instances, at route.Path
}

var _ Asker = (*route.Router)(nil)

// Options of an API.
type Options struct {
	Version string
	Process string // ID of this process, which is part of the IDs of its jobs
	Asker   Asker
	Topics  map[string]Topic // request topics, and fixed-delay topics, whose dead letters are shown
	Logs    Logs
	// Marks stores which dead letters have been reviewed. If it is nil, none can be.
	Marks Marks
	// Calendars are the exclusion calendars. If it is nil, there are none.
	Calendars Calendars
	// PartitionOf returns the partition of the requests for an ID, in a topic with n partitions.
	PartitionOf func(id []byte, n int32) int32
	// OfTarget describes a problem of a target topic, for example that it does not exist; "" if there is none. If
	// OfTarget is nil, targets are not checked.
	OfTarget func(ctx context.Context, topic string) string
	Rights   Rights
	Registry prometheus.Registerer // takes the metrics; nil: there are none
	Logger   *slog.Logger
	Tracer   trace.Tracer     // nil: calls have no spans
	Now      func() time.Time // nil: time.Now
}

// API answers HTTP. It is safe for concurrent use. Close it to end its jobs and streams.
type API struct {
	internal http.Handler // answers other instances
	public   http.Handler // answers all other calls
	jobs     *jobs
	life     *tasks.Group
}

var (
	_ route.JobHolder = (*API)(nil)
	_ http.Handler    = (*API)(nil)
)

// common is shared by operations of all kinds.
type common struct {
	topics *topics
	asker  Asker
	logs   Logs
	now    func() time.Time
	life   *tasks.Group
	log    *slog.Logger
}

// New returns an API.
func New(o Options) *API {
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &common{
		topics: &topics{all: o.Topics, rights: o.Rights, partitionOf: o.PartitionOf}, asker: o.Asker,
		logs: boundedLogs{o.Logs, access.NewPool(logReads, logReadsEach, readTimeout)}, now: o.Now,
		life: tasks.New(context.Background()),
		log:  o.Logger,
	}
	mux := http.NewServeMux()
	h := humago.New(mux, config(o.Version))
	h.UseMiddleware(asSent, onlyForPosts)
	one, all, reviewed := &timers{c, o.OfTarget}, &lists{c}, newReviews(c, o.Marks)
	run := &jobs{common: c, lists: all, process: o.Process, free: access.NewPool(maxRunning, runningEach, 0),
		all: make(map[string]*job)}
	one.register(h)
	all.register(h)
	(&batches{c}).register(h)
	run.register(h)
	(&letters{c, one, reviewed}).register(h)
	newCounts(c, reviewed).register(h)
	(&resends{jobs: run, reviews: reviewed}).register(h)
	(&events{c, access.NewPool(maxStreams, maxStreams, streamWait)}).register(h)
	excluding := &calendarsOf{c, o.Calendars}
	excluding.register(h)
	(&service{c, excluding}).register(h)
	c.topics.registerCaller(h)
	serveDocument(mux, h.OpenAPI())
	return &API{internal: o.Asker, public: withRequest(newFront(mux, &o)), jobs: run, life: c.life}
}

// Close stops all jobs and streams, and waits for the end of the jobs.
func (a *API) Close() {
	a.life.Stop()
}

// JobsHere implements route.JobHolder.
func (a *API) JobsHere(ctx context.Context, id string, stop bool) ([]Job, error) {
	return a.jobs.here(ctx, id, stop)
}

// ServeHTTP implements http.Handler. It does not use a mux: a mux redirects paths that are not clean before front
// sees them.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == route.Path {
		a.internal.ServeHTTP(w, r)
		return
	}
	a.public.ServeHTTP(w, r)
}
