package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/waterclock/waterclock/internal/config"
)

// backend is what the commands call: the functions of internal/service, or
// those of a test.
type backend struct {
	run      func(context.Context, *config.Config, *slog.Logger) error
	dev      func(context.Context, devOptions, *slog.Logger) error
	schedule func(context.Context, *config.Config, scheduleRequest) (sent, error)
	cancel   func(ctx context.Context, cfg *config.Config, topic, id string) (sent, error)
	topics   func(ctx context.Context, cfg *config.Config, create bool, out io.Writer) error
}

// devOptions is what dev runs with.
type devOptions struct {
	Config *config.Config
	Listen string // address of the embedded broker
	Demo   bool
	Out    io.Writer
}

// scheduleRequest is one request to send.
type scheduleRequest struct {
	Topic     string        // request topic
	ID        string        // timer ID, 1 to 512 bytes
	At        time.Time     // due then; zero: In counts
	In        time.Duration // due that long after the request's timestamp
	To        string        // target topic; empty: the service's default
	Partition int32         // of the target; -1: by key
	Key       []byte        // of the emission; nil: the timer ID
	NullKey   bool          // the emission has a null key
	Value     []byte        // payload; nil: null
	Headers   []header      // to pass on, in order
}

// header is one header of a request. It is unnamed, so that it can be assigned
// to the Kafka client's own type without importing that.
type header = struct {
	Key   string
	Value []byte
}

// sent is where a request went.
type sent struct {
	Topic     string
	Partition int32
	Offset    int64
	Due       time.Time // zero for a cancel
}

// realBackend returns the real backend.
func realBackend() backend {
	missing := errors.New("not built in yet")
	return backend{
		run:      func(context.Context, *config.Config, *slog.Logger) error { return missing },
		dev:      func(context.Context, devOptions, *slog.Logger) error { return missing },
		schedule: func(context.Context, *config.Config, scheduleRequest) (sent, error) { return sent{}, missing },
		cancel:   func(context.Context, *config.Config, string, string) (sent, error) { return sent{}, missing },
		topics:   func(context.Context, *config.Config, bool, io.Writer) error { return missing },
	}
}
