package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/api"
	apiaccess "github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/ops"
	"github.com/waterclock/waterclock/internal/service/connect"
)

// apiShutdown is how long calls in flight may take to end at a stop.
const apiShutdown = 2 * time.Second

// apiServer is the HTTP API of an instance. It is bound before there are brokers, so that an
// address that is taken is known at once, and so that the instance can tell others where it is
// asked; it answers once the instance runs.
type apiServer struct {
	in       *instance
	guard    *apiaccess.Guard
	listener net.Listener
	address  string // by which others know it, as a URL
	handler  atomic.Pointer[http.Handler]
	unaudit  func() // ends the audit
}

// listenAPI binds the address of the API; nil: there is none.
func (in *instance) listenAPI() (*apiServer, error) {
	cfg := in.cfg
	if cfg.API == "" {
		return nil, nil
	}
	audit, stop, err := ops.Audit(cfg.APIAudit, in.log)
	if err != nil {
		return nil, fmt.Errorf("open the API: %w", err)
	}
	s := &apiServer{in: in, unaudit: stop}
	defer func() {
		if s.listener == nil {
			stop()
		}
	}()
	s.guard, err = apiaccess.New(apiaccess.Options{
		Audit:   audit,
		Address: cfg.API, Open: cfg.APIOpen, Users: cfg.APIUsers, KeyFile: cfg.APIKeyFile, Peers: cfg.APIPeers, TLSCert: cfg.APITLSCert, TLSKey: cfg.APITLSKey,
		ClientCA: cfg.APIClientCA, BodyLimit: int64(cfg.APIBodyLimit), Memory: in.shares.Calls, Rate: cfg.APIRate, AtOnce: cfg.APIConcurrent,
		Registry: in.registry,
	}, in.log)
	if err != nil {
		return nil, fmt.Errorf("open the API: %w", err)
	}
	for _, grant := range cfg.UnservedGrants() {
		in.log.Warn("a grant in api-users is for topics that this instance does not serve", "grant", grant)
	}
	l, err := net.Listen("tcp", cfg.API)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("listen for the API: another process has taken %s; choose another address with --api", cfg.API)
	}
	if err != nil {
		return nil, fmt.Errorf("listen for the API: %w", err)
	}
	s.listener = l
	s.address = s.guard.Scheme() + "://" + cmp.Or(cfg.Advertise, advertise(l.Addr().String()))
	return s, nil
}

// advertise is by what others reach an address that is listened on: itself, or by the name
// of the host where it is all addresses of the machine.
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

// URL is the address by which others know the API; empty: there is none.
func (s *apiServer) URL() string {
	if s == nil {
		return ""
	}
	return s.address
}

// Run serves until ctx ends.
func (s *apiServer) Run(ctx context.Context) error {
	server := s.guard.Server(s.guard.Wrap(http.HandlerFunc(s.serve)))
	s.in.log.Info("serving the API", "address", s.listener.Addr().String(), "advertised", s.address, "forwards", s.in.cfg.APIKeyFile != "")
	var stopping sync.WaitGroup
	over, cancel := context.WithCancel(ctx)
	stopping.Go(func() {
		<-over.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), apiShutdown)
		defer cancel()
		if server.Shutdown(end) != nil {
			_ = server.Close()
		}
	})
	err := s.guard.Serve(server, s.listener)
	cancel()
	stopping.Wait()
	s.unaudit()
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the API: %w", err)
	}
	return nil
}

// serve answers once there is somebody to ask.
func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	if h := s.handler.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	api.Starting(w)
}

// open makes what answers, when topics are known and partitions can be owned. What it returns
// ends that.
func (s *apiServer) open(in *instance) (stop func(), err error) {
	history, forget := in.remember()
	local, err := newLocal(in, history)
	if err != nil {
		forget()
		return nil, err
	}
	o := route.Options{
		Local: local, Directory: &directory{in}, Process: in.process, MaxBody: int64(in.cfg.APIBodyLimit), May: mayForwarded, Room: callRoom{},
	}
	if in.cfg.APIKeyFile != "" {
		o.Transport = s.guard.Peers()
	}
	router := route.New(o)
	topics := make(map[string]api.Topic, len(in.topics))
	for name, t := range in.topics {
		topics[name] = api.Topic{Partitions: t.set.Request.Partitions, MaxBytes: t.set.Request.MaxMessageBytes, DeadLetters: t.set.DeadLetters.Name, Events: t.set.Events.Name}
	}
	delays := make(map[string]api.Topic, len(in.delayed))
	for name, t := range in.delayed {
		delays[name] = api.Topic{Partitions: t.set.Request.Partitions, MaxBytes: t.set.Request.MaxMessageBytes, DeadLetters: t.set.DeadLetters.Name}
	}
	a := api.New(api.Options{
		OfTarget: in.ofTarget,
		Version:  ops.ReadBuild().Version, Process: in.process, Asker: router, Internal: router, Topics: topics, Delays: delays, Logs: &logs{in}, PartitionOf: intake.Murmur2Partition, Logger: in.log, Registry: in.registry,
		Rights: api.Rights{May: apiaccess.May, Some: apiaccess.MaySome, Caller: callerName},
	})
	router.HaveJobs(a)
	h := withConsole(in, a, history)
	s.handler.Store(&h)
	return func() {
		s.handler.Store(nil)
		a.Close()
		local.close()
		forget()
	}, nil
}

// ofTarget returns a note if a target topic does not exist, except in dev, which creates it on first use.
func (in *instance) ofTarget(ctx context.Context, topic string) string {
	if known, ok := in.targets.Cached(topic); in.o.AutoCreateTargets || ok && known.Err == nil {
		return ""
	}
	return connect.MissingTarget(ctx, in.client, topic)
}

// callRoom is the memory of the API's calls.
type callRoom struct{}

func (callRoom) Reserve(ctx context.Context, n int64) error {
	if p := apiaccess.Reserve(ctx, n); p != nil {
		return p
	}
	return nil
}

func (callRoom) GiveBack(ctx context.Context, n int64) { apiaccess.GiveBack(ctx, n) }

func callerName(ctx context.Context) string {
	c, _ := apiaccess.CallerOf(ctx)
	return c.Name
}

// mayForwarded says what another instance may ask in the name of a caller: what the caller may
// here. The instance has asked for the same rights before; its file may be older.
func mayForwarded(ctx context.Context, c *route.Call) error {
	if caller, ok := apiaccess.CallerOf(ctx); !ok || !caller.Forwarded {
		return errors.New("only other instances ask here, with the key that they share (api-key-file)")
	}
	switch c.Kind {
	case route.Get, route.Find:
		return apiaccess.May(ctx, apiaccess.Read, c.Topic, string(c.ID))
	case route.List, route.Count:
		if c.Page == nil {
			return errors.New("a question without a filter")
		}
		return apiaccess.May(ctx, apiaccess.Read, c.Topic, c.Page.Filter.Prefix)
	case route.Write:
		for i := range c.Requests {
			if err := apiaccess.May(ctx, apiaccess.Write, c.Topic, string(c.Requests[i].ID)); err != nil {
				return err
			}
		}
		return nil
	case route.Jobs, route.Stop:
		return nil // each job asks for a right of its own
	case route.Status:
		return apiaccess.May(ctx, apiaccess.Read, "", "")
	}
	return fmt.Errorf("unknown kind of call %q", c.Kind)
}
