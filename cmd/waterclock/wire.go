package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/service"
	"github.com/waterclock/waterclock/internal/service/commands"
	"github.com/waterclock/waterclock/internal/service/dev"
)

// backend is what the commands call: the functions of internal/service, or
// those of a test.
type backend struct {
	run         func(ctx context.Context, cfg *config.Config, reload <-chan *config.Config, log *slog.Logger) error
	dev         func(context.Context, dev.Options, *slog.Logger) error
	schedule    func(context.Context, *config.Config, commands.ScheduleRequest) (commands.Sent, error)
	steer       func(context.Context, *config.Config, commands.SteerRequest) (commands.Sent, error)
	topics      func(ctx context.Context, cfg *config.Config, create bool, out io.Writer) error
	follow      func(ctx context.Context, cfg *config.Config, o commands.RepartitionOptions, out io.Writer) error
	storeVerify func(ctx context.Context, dataDir string, out io.Writer) error
	storeDump   func(ctx context.Context, dataDir string, payloads bool, out io.Writer) error
	audit       func(ctx context.Context, cfg *config.Config, o commands.AuditOptions, out io.Writer) error
	acls        func(cfg *config.Config, o commands.ACLOptions, out io.Writer) error
}

// header is an alias of an unnamed type, so that it can be assigned to the Kafka client's type without importing that.
type header = struct {
	Key   string
	Value []byte
}

// realBackend returns the service itself.
func realBackend() backend {
	return backend{
		run:         service.Serve,
		dev:         dev.Run,
		schedule:    commands.Schedule,
		steer:       commands.Steer,
		topics:      commands.Topics,
		follow:      commands.Repartition,
		storeVerify: commands.StoreVerify,
		storeDump:   commands.StoreDump,
		audit:       commands.Audit,
		acls:        commands.ACLs,
	}
}
