package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/internal/node/commands"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/dev"
)

// backend has the functions of internal/node that tests replace. Commands call the others directly.
type backend struct {
	run    func(context.Context, *config.Config, *slog.Logger, node.Options) error
	dev    func(context.Context, dev.Options, *slog.Logger) error
	send   func(context.Context, *config.Config, commands.Request) (commands.Sent, error)
	topics func(ctx context.Context, cfg *config.Config, create bool, out io.Writer) error
	follow func(ctx context.Context, cfg *config.Config, o commands.RepartitionOptions, out io.Writer) error
	audit  func(ctx context.Context, cfg *config.Config, o commands.AuditOptions, out io.Writer) error
	tail   func(ctx context.Context, cfg *config.Config, o commands.TailOptions, out io.Writer) error
}

// realBackend returns the service itself.
func realBackend() backend {
	return backend{node.RunWith, dev.Run, commands.Send, commands.Topics, commands.Repartition, commands.Audit,
		commands.Tail}
}
