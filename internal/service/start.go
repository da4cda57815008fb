package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/dialer"
	"github.com/waterclock/waterclock/internal/hanging"
	"github.com/waterclock/waterclock/internal/service/connect"
	"github.com/waterclock/waterclock/internal/service/datadir"
	"github.com/waterclock/waterclock/internal/service/policy"
	"github.com/waterclock/waterclock/internal/targets"
	"github.com/waterclock/waterclock/internal/topics"
	"github.com/waterclock/waterclock/statestore"
)

// openClient makes the first client, and what tells who can be reached.
func (in *instance) openClient() (err error) {
	in.opts, err = connect.Options(in.cfg, clientPrefix+in.process, in.log)
	if err != nil {
		return err
	}
	dial := in.o.Dial
	if dial == nil {
		dial = connect.Dial(in.cfg)
	}
	in.dialer = dialer.New(dial, in.log, in.registry)
	in.opts = append(in.opts, kgo.Dialer(in.dialer.Dial))
	in.client, err = kgo.NewClient(connect.RequestOptions(in.opts)...)
	if err != nil {
		return fmt.Errorf("build client: %w", err)
	}
	in.targets = targets.NewMetadata(in.client, targets.MetadataOptions{AutoCreate: in.o.AutoCreateTargets, MissingAfter: in.o.MissingAfter, Reach: in.dialer, Changed: in.reached})
	in.dialer.OnChange(func() { in.targets.Reached(); in.reached() })
	return nil
}

// probe has the dialer look after the brokers until stop is called.
func (in *instance) probe(life context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(life)
	var run sync.WaitGroup
	run.Go(func() { _ = in.dialer.Run(ctx) })
	return func() { cancel(); run.Wait() }
}

// reached tells the lanes that a broker came or went.
func (in *instance) reached() {
	in.mu.Lock()
	lanes := in.lanes
	in.mu.Unlock()
	if lanes != nil {
		lanes.Reached()
	}
}

// connect waits until the brokers let this process do what it needs.
func (in *instance) connect(ctx context.Context) error {
	a := &access{cfg: in.cfg, client: in.client, log: in.log, probe: hanging.TransactionalIDPrefix(in.cfg.Group) + in.process + "/rights"}
	in.mu.Lock()
	in.access = a
	in.mu.Unlock()
	in.registry.MustRegister(a)
	return a.await(ctx)
}

func (in *instance) openTopics(ctx context.Context) error {
	in.setPhase("checking topics")
	adm := kadm.NewClient(in.client)
	in.topics, in.delayed = make(map[string]*served), make(map[string]*served)
	ensure := func(name string, delay time.Duration) (topics.Set, error) {
		var set topics.Set
		var problems []topics.Problem
		err := in.insist(ctx, "topics cannot be checked", func() (err error) {
			set, problems, err = topics.Ensure(ctx, adm, name, policy.TopicOptions(in.cfg, name, delay, in.cfg.CreateTopics))
			return err
		})
		for _, p := range problems {
			in.log.Warn("topic setting", "problem", p.String())
		}
		return set, err
	}
	for _, name := range in.cfg.Requests {
		set, err := ensure(name, 0)
		if err != nil {
			return err
		}
		in.topics[name] = newServed(in.client, set, policy.Rules(in.cfg, set))
	}
	for _, d := range in.cfg.Delay {
		set, err := ensure(d.Topic, d.Delay)
		if err != nil {
			return err
		}
		in.delayed[d.Topic] = newServed(in.client, set, policy.DelayRules(in.cfg, d, set))
	}
	in.warnChained(ctx)
	return nil
}

// insist tries again for as long as connections break: a broker that dies while an
// instance starts does not end it.
func (in *instance) insist(ctx context.Context, what string, try func() error) error {
	for {
		err := try()
		if err == nil || !connectionBroke(err) || ctx.Err() != nil {
			return err
		}
		in.log.Warn(what+", trying again every second", "err", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(connect.ConnectPause):
		}
	}
}

// connectionBroke reports that no broker has answered.
func connectionBroke(err error) bool {
	var network net.Error
	for _, cut := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed} {
		if errors.Is(err, cut) {
			return true
		}
	}
	return errors.As(err, &network)
}

// of is what is known of a topic that is served, nil if it is not.
func (in *instance) of(topic string) *served {
	if t := in.topics[topic]; t != nil {
		return t
	}
	return in.delayed[topic]
}

// all are the names of all topics that are served.
func (in *instance) all() []string {
	return slices.Concat(slices.Collect(maps.Keys(in.topics)), slices.Collect(maps.Keys(in.delayed)))
}

// requestTopics are the request topics as they are.
func (in *instance) requestTopics() (all []topics.Topic) {
	for _, t := range in.topics {
		all = append(all, t.set.Request)
	}
	return all
}

// warnChained looks for targets, of those that are named in full, that are request
// topics of another service. What fires carries no timer- headers, so there it is
// refused, or cancels if its value is null. The latter may be meant, a cancel that
// comes at a given time; so it is a warning and no refusal.
func (in *instance) warnChained(ctx context.Context) {
	var logs []string
	for _, name := range in.cfg.TargetNames() {
		logs = append(logs, topics.Changelog(name))
	}
	if len(logs) == 0 {
		return
	}
	details, err := connect.AskTopics(ctx, in.client, logs)
	if err != nil {
		in.log.Debug("cannot look whether targets are request topics", "err", err)
	}
	for log, d := range details {
		if !d.Absent && !d.Refused {
			in.log.Warn("a target is a request topic that others serve: what fires there has no due time and is refused, or is taken for a cancel if its value is null",
				"target", strings.TrimSuffix(log, topics.Changelog("")))
		}
	}
}

func (in *instance) openStore(ctx context.Context, end context.CancelCauseFunc) error {
	in.setPhase("opening the store")
	var cluster kadm.Metadata
	err := in.insist(ctx, "the cluster's ID cannot be read", func() (err error) {
		cluster, err = kadm.NewClient(in.client).BrokerMetadata(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the cluster's ID: %w", err)
	}
	if err := os.MkdirAll(in.cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("data directory %s cannot be made: %w; choose another one with --data-dir", in.cfg.DataDir, err)
	}
	home := intake.Murmur2Partition
	if in.cfg.PartitionerCheck == config.CheckOff {
		home = nil
	}
	in.store, err = statestore.Open(statestore.Options{
		Home: home,
		Dir:  datadir.Store(in.cfg.DataDir), Logger: in.log, Now: in.o.Now, FlushInterval: in.o.FlushInterval,
		Memory: uint64(in.shares.Store), BeforeFlush: in.checkpoint,
		OnFatal: func(err error) {
			err = storeEnded(in.cfg.DataDir, err)
			in.log.Error("ending the process", "err", err)
			in.storeDead.Store(true)
			end(err)
		},
	})
	if err != nil {
		return fmt.Errorf("%w; %s", err, storeAdvice(err))
	}
	if err := in.store.BindCluster(cluster.Cluster); err != nil {
		return errors.Join(err, in.store.Close())
	}
	if err := datadir.NoteNames(in.cfg.DataDir, in.requestTopics()); err != nil {
		in.log.Warn("the names of topics cannot be noted in the data directory", "err", err)
	}
	in.registry.MustRegister(in.store.Collector())
	return nil
}
