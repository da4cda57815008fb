package node

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/waterclock/waterclock/internal/kafka/tracing"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/ops"
	"github.com/waterclock/waterclock/internal/node/otlp"
)

// traces is what an instance does with trace contexts; see the setting tracing.
type traces struct {
	firings *tracing.Firings // nil: emissions carry the trace context of their requests
	calls   trace.Tracer     // of the API; nil: calls have no spans
	stop    func()
}

// openTraces reads OpenTelemetry's environment variables if the settings ask for spans. Otherwise nothing is exported.
func (in *instance) openTraces(ctx context.Context) error {
	in.traces.stop = func() {}
	switch in.cfg.Tracing {
	case config.TracingOff:
		in.traces.firings = tracing.NoContext()
	case config.TracingLink:
		to, err := otlp.New(ctx, ops.ReadBuild().Version, in.name(), in.log)
		if err != nil {
			return err
		}
		in.log = slog.New(tracing.LogHandler(in.log.Handler()))
		in.traces = traces{firings: tracing.Linked(to.Firings()), calls: to.Calls(), stop: func() {
			if err := to.Stop(); err != nil {
				in.log.Warn("the last traces were not exported", "err", err)
			}
		}}
	}
	return nil
}
