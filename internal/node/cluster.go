package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/connect"
	"github.com/waterclock/waterclock/internal/node/dialer"
)

// cluster is what an instance knows about its brokers and how to reach them.
type cluster struct {
	log     *slog.Logger
	options []kgo.Opt   // for further clients
	client  *kgo.Client // for administration and raw fetches
	dialer  *dialer.Dialer
	targets *targets.Metadata
	lanes   atomic.Pointer[emitter.Lanes] // told when a broker comes or goes; nil until the pipeline is built

	stopProbe context.CancelFunc
	probing   sync.WaitGroup
}

// openCluster makes the first client, and the dialer that probes the brokers until close is called.
func openCluster(cfg *config.Config, process string, o *Options, log *slog.Logger) (*cluster, error) {
	c := &cluster{log: log}
	var err error
	if c.options, err = connect.Options(cfg, clientPrefix+process, log); err != nil {
		return nil, err
	}
	dial := o.Dial
	if dial == nil {
		dial = connect.Dial(cfg)
	}
	c.dialer = dialer.New(dial, log, o.Registry)
	c.options = append(c.options, kgo.Dialer(c.dialer.Dial))
	// Each request of this client has a time limit, because other parts wait for the answers.
	if c.client, err = kgo.NewClient(
		append(slices.Clone(c.options), kgo.RequestTimeoutOverhead(emitter.RequestTimeout))...); err != nil {
		return nil, fmt.Errorf("build client: %w", err)
	}
	c.targets = targets.NewMetadata(
		c.client, targets.MetadataOptions{MissingAfter: o.MissingAfter, Reach: c.dialer, Changed: c.reached})
	c.dialer.OnChange(func() { c.targets.Reached(); c.reached() })
	ctx, stop := context.WithCancel(context.Background())
	c.stopProbe = stop
	c.probing.Go(func() { _ = c.dialer.Run(ctx) })
	return c, nil
}

// recognize asks whether the cluster is that of dev, which creates targets on first use.
func (c *cluster) recognize(ctx context.Context) error {
	return c.insist(ctx, "the cluster cannot be asked for its ID", func() (err error) {
		c.targets.AutoCreate, err = connect.IsDev(ctx, c.client)
		return err
	})
}

func (c *cluster) close() {
	c.stopProbe()
	c.probing.Wait()
	c.client.Close()
}

// reached tells the lanes that a broker came or went.
func (c *cluster) reached() {
	if lanes := c.lanes.Load(); lanes != nil {
		lanes.Reached()
	}
}

// insist repeats try while connections break, so that a broker that dies while an instance starts does not end the
// instance.
func (c *cluster) insist(ctx context.Context, what string, try func() error) error {
	for {
		err := try()
		if err == nil || !connectionBroke(err) || ctx.Err() != nil {
			return err
		}
		c.log.Warn(what+", trying again every second", "err", err)
		if !beats.Sleep(ctx, connectPause) {
			return err
		}
	}
}

// connectionBroke reports whether an error says that no broker has answered.
func connectionBroke(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed)
}
