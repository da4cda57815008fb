package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/service"
)

// backend is what the commands call: the functions of internal/service, or
// those of a test.
type backend struct {
	run         func(ctx context.Context, cfg *config.Config, reload <-chan *config.Config, log *slog.Logger) error
	dev         func(context.Context, service.DevOptions, *slog.Logger) error
	schedule    func(context.Context, *config.Config, service.ScheduleRequest) (service.Sent, error)
	steer       func(context.Context, *config.Config, service.SteerRequest) (service.Sent, error)
	topics      func(ctx context.Context, cfg *config.Config, create bool, out io.Writer) error
	follow      func(ctx context.Context, cfg *config.Config, directories []string, out io.Writer) error
	storeVerify func(ctx context.Context, dataDir string, out io.Writer) error
	storeDump   func(ctx context.Context, dataDir string, payloads bool, out io.Writer) error
	acls        func(cfg *config.Config, o service.ACLOptions, out io.Writer) error
}

// The commands' names for what they hand over.
type (
	devOptions      = service.DevOptions
	scheduleRequest = service.ScheduleRequest
	steerRequest    = service.SteerRequest
	recurrence      = service.Recurrence
	sent            = service.Sent
	fate            = service.Fate
	aclOptions      = service.ACLOptions

	// header is unnamed, so that it can be assigned to the Kafka client's own
	// type without importing that.
	header = struct {
		Key   string
		Value []byte
	}
)

// realBackend returns the service itself.
func realBackend() backend {
	return backend{
		run:         service.Serve,
		dev:         service.Dev,
		schedule:    service.Schedule,
		steer:       service.Steer,
		topics:      service.Topics,
		follow:      service.Repartition,
		storeVerify: service.StoreVerify,
		storeDump:   service.StoreDump,
		acls:        service.ACLs,
	}
}
