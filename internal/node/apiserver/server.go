// Package apiserver serves the HTTP API of an instance:
//
//	server, err := apiserver.Listen(cfg, memory, log, registry)
//	go server.Run(ctx)
//	stop, err := server.Open(instance) // until then it answers that the instance is starting
//
// It binds internal/api and internal/api/route to the instance's partitions, its group and its brokers.
package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"

	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/api"
	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/console"
	"github.com/waterclock/waterclock/internal/api/recent"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kafka/calendars"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/kit/tasks"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/internal/node/ops"
	"github.com/waterclock/waterclock/internal/ownership"
	"github.com/waterclock/waterclock/internal/ownership/membership"
	"github.com/waterclock/waterclock/internal/partition"
	"github.com/waterclock/waterclock/internal/rates"
	"github.com/waterclock/waterclock/internal/timer"
)

// apiShutdown is how long calls in flight may take to end at a stop.
const apiShutdown = 2 * time.Second

// Server is the HTTP API of an instance. It listens before the instance connects to brokers, so that an address in use
// is reported immediately, and so that the instance can advertise its address. Until the instance runs, it answers only
// that the instance is starting.
type Server struct {
	cfg      *config.Config
	log      *slog.Logger
	registry *prometheus.Registry
	guard    *access.Guard
	listener net.Listener
	address  string // the URL by which others know it
	handler  atomic.Pointer[http.Handler]
	unaudit  func() // ends the audit
}

// Instance has everything that the API needs of its instance, once the instance runs.
type Instance struct {
	Name, Process string // for people; its ID
	Begun         time.Time
	Now           func() time.Time
	Client        *kgo.Client // for administration
	Options       []kgo.Opt   // for further clients
	Topics        []topics.Set
	Rules         map[string]*intake.Rules // of all topics, by name
	Group         *membership.Group
	// Problem returns why the instance is not a member of its group, or may no longer be one; "" if it is one.
	Problem    func() string
	Partitions Partitions
	Targets    *targets.Metadata
	// SettingsOf returns the settings in which a process differs from most instances of the group; nil: not known.
	SettingsOf func(process string) []string
	Health     *targets.Health
	Limiter    *rates.Limiter
	Tracer     trace.Tracer // of calls; nil: they have no spans
	Calendars  *calendars.Writer
}

// Partitions are the partitions that the instance owns.
type Partitions interface {
	// Owned returns a partition of a request topic; nil if the instance does not own it, or has lost it.
	Owned(at timer.TopicPartition) *partition.Partition
	// Status returns the states of all partitions that are not gone.
	Status() map[timer.TopicPartition]ownership.Status
}

// Listen binds the address of the API. It returns nil if the settings name no address. memory is how many bytes calls
// may take.
func Listen(cfg *config.Config, memory int64, log *slog.Logger, registry *prometheus.Registry) (*Server, error) {
	if cfg.API == "" {
		return nil, nil
	}
	audit, stop, err := ops.Audit(cfg.APIAudit, log)
	if err != nil {
		return nil, fmt.Errorf("open the API: %w", err)
	}
	s := &Server{cfg: cfg, log: log, registry: registry, unaudit: stop}
	defer func() {
		if s.listener == nil {
			stop()
		}
	}()
	s.guard, err = access.New(access.Options{
		Audit:   audit,
		Address: cfg.API, Open: cfg.APIOpen, Hosts: hosts(cfg),
		Users: cfg.APIUsers, KeyFile: cfg.APIKeyFile, Peers: cfg.APIPeers,
		TLSCert: cfg.APITLSCert, TLSKey: cfg.APITLSKey,
		ClientCA: cfg.APIClientCA, BodyLimit: int64(cfg.APIBodyLimit), Memory: memory, Rate: cfg.APIRate,
		AtOnce:   cfg.APIConcurrent,
		Registry: registry,
	}, log)
	if err != nil {
		return nil, fmt.Errorf("open the API: %w", err)
	}
	for _, grant := range UnservedGrants(cfg) {
		log.Warn("unused grant in api-users: this instance does not serve its topics", "grant", grant)
	}
	l, err := net.Listen("tcp", cfg.API)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen for the API: another process has taken %s; choose another address with --api",
			cfg.API)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for the API: %w", err)
	}
	s.listener = l
	s.address = s.guard.Scheme() + "://" + cmp.Or(cfg.Advertise, advertise(l.Addr().String()))
	return s, nil
}

// advertise returns the address by which others reach a listener: its own, or one with the name of the host if it
// listens on all addresses of the machine.
func advertise(bound string) string {
	host, port, err := net.SplitHostPort(bound)
	if ip := net.ParseIP(host); err != nil || ip != nil && !ip.IsUnspecified() {
		return bound
	}
	name, err := os.Hostname()
	if err != nil {
		return bound
	}
	return net.JoinHostPort(name, port)
}

// hosts returns the names under which an open API answers: those of the settings, and the one that it advertises.
func hosts(cfg *config.Config) []string {
	own, _, err := net.SplitHostPort(cmp.Or(cfg.Advertise, advertise(cfg.API)))
	if err != nil {
		return cfg.APIHost
	}
	return append(slices.Clone(cfg.APIHost), own)
}

// URL returns the address by which others know the API; "" if there is no API.
func (s *Server) URL() string {
	if s == nil {
		return ""
	}
	return s.address
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	server := s.guard.Server(s.guard.Wrap(http.HandlerFunc(s.serve)))
	s.log.Info("serving the API", "address", s.listener.Addr().String(), "advertised", s.address, "forwards",
		s.cfg.APIKeyFile != "")
	err := ops.ServeUntil(ctx, server, apiShutdown, func() error { return s.guard.Serve(server, s.listener) })
	s.unaudit()
	if err != nil {
		return fmt.Errorf("serve the API: %w", err)
	}
	return nil
}

// serve answers calls between Open and its stop. Otherwise it says that the instance is starting.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if h := s.handler.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	api.Starting(w)
}

// Open makes the server answer until stop is called. It is called once topics are known and partitions can be owned.
func (s *Server) Open(in *Instance) (stop func(), err error) {
	local, err := newLocal(in, s.address)
	if err != nil {
		return func() {}, err
	}
	// The instance's activity is recorded for the API and the console.
	local.history = recent.New(s.registry, s.log)
	remembering := tasks.New(context.Background())
	remembering.Go(local.history.Run)
	router := route.New(route.Options{
		Local: local, Directory: &directory{in, s.cfg}, Process: in.Process, Transport: s.guard.Peers(),
		MaxBody: int64(s.cfg.APIBodyLimit), May: mayForwarded, Room: callRoom{}, SettingsOf: in.SettingsOf,
	})
	served := make(map[string]api.Topic)
	for i := range in.Topics {
		set := &in.Topics[i]
		served[set.Request.Name] = api.Topic{
			Partitions: set.Request.Partitions, MaxBytes: set.Request.MaxMessageBytes, Delay: set.Delay != 0,
			DeadLetters: set.DeadLetters.Name, Events: set.Events.Name,
			Rules: &requestRules{rules: in.Rules[set.Request.Name], delay: set.Delay != 0, now: in.Now},
		}
	}
	a := api.New(api.Options{
		OfTarget: in.noteOfTarget,
		Version:  ops.ReadBuild().Version, Process: in.Process, Asker: router, Topics: served,
		Logs: newLogs(in, s.log), Marks: newMarks(in, s.cfg.Group), PartitionOf: intake.Murmur2Partition,
		Calendars: in.Calendars, Logger: s.log, Registry: s.registry, Tracer: in.Tracer,
		Rights: api.Rights{May: access.May, Some: access.MaySome, Grants: access.Grants, Caller: callerName},
	})
	router.HaveJobs(a)
	var h http.Handler = a
	if s.cfg.Console {
		h = console.New(console.Options{API: a, History: local.history, Logger: s.log, Now: in.Now})
	}
	s.handler.Store(&h)
	return func() {
		s.handler.Store(nil)
		a.Close()
		local.producer.Close()
		remembering.Stop()
	}, nil
}

// noteOfTarget returns a note if a target topic does not exist; "" otherwise, and in dev, which creates topics on first
// use.
func (in *Instance) noteOfTarget(ctx context.Context, topic string) string {
	if known, ok := in.Targets.Cached(topic); in.Targets.AutoCreate || ok && known.Err == nil {
		return ""
	}
	return connect.MissingTarget(ctx, in.Client, topic)
}

// callRoom is the memory of the API's calls.
type callRoom struct{}

var _ route.Room = callRoom{}

func (callRoom) Reserve(ctx context.Context, n int64) error { return access.Reserve(ctx, n) }

func (callRoom) GiveBack(ctx context.Context, n int64) { access.GiveBack(ctx, n) }

func callerName(ctx context.Context) string {
	c, _ := access.CallerOf(ctx)
	return c.Name
}

// mayForwarded returns an error if another instance may not make a call in the name of a caller. It may if the caller
// has the right here. The other instance has checked the same rights before, but its file of users may be older.
func mayForwarded(ctx context.Context, c *route.Call) error {
	if caller, ok := access.CallerOf(ctx); !ok || !caller.Forwarded {
		return errors.New("only other instances ask here, with the key that they share (api-key-file)")
	}
	switch c.Kind {
	case route.Get, route.Find:
		return access.May(ctx, access.Read, c.Topic, string(c.ID))
	case route.List, route.Count:
		if c.Page == nil {
			return errors.New("a question without a filter")
		}
		return access.May(ctx, access.Read, c.Topic, c.Page.Filter.Prefix)
	case route.Write:
		for i := range c.Requests {
			if err := access.May(ctx, access.Write, c.Topic, string(c.Requests[i].ID)); err != nil {
				return err
			}
		}
		return nil
	case route.Jobs, route.Stop:
		return nil // each job checks a right of its own
	case route.Status:
		return access.May(ctx, access.Read, "", "")
	}
	return fmt.Errorf("unknown kind of call %q", c.Kind)
}

// Validate returns the problems of the files of callers and of keys in the settings, each a [config.Problem]. It
// complements [config.Config.Validate], which knows neither format.
func Validate(cfg *config.Config) error {
	wrong := func(setting, path, need string, check func(path string) error) error {
		if path == "" {
			return nil
		}
		if err := check(path); err != nil {
			return &config.Problem{Setting: setting, Found: path,
				Need: fmt.Sprintf("%s: %v", need, config.Pathless(err))}
		}
		return nil
	}
	return errors.Join(
		wrong("api-users", cfg.APIUsers, "a file of callers", access.CheckCallers),
		wrong("api-key-file", cfg.APIKeyFile, "a file with a key", access.CheckKeys))
}

// UnservedGrants returns the grants in api-users that cover no topic of this instance. If the file cannot be read, it
// returns none, because Validate reports that.
func UnservedGrants(cfg *config.Config) []string {
	if cfg.APIUsers == "" {
		return nil
	}
	names, err := access.UnservedGrants(cfg.APIUsers, slices.Concat(cfg.Requests, cfg.DelayTopics()))
	if err != nil {
		return nil
	}
	return names
}
