package service

import (
	"log/slog"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/config"
)

// ClientOptions are those of any client of cfg's cluster: brokers, identity and
// security. They are for programs that work beside an instance, as bench does.
func ClientOptions(cfg *config.Config, clientID string, log *slog.Logger) ([]kgo.Opt, error) {
	return clientOptions(cfg, clientID, log)
}
