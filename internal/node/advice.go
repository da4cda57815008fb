package node

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/node/config"
)

// refusedSetting returns err as a problem of a setting, if err says that the brokers do not allow its value.
func refusedSetting(cfg *config.Config, err error) error {
	switch {
	case errors.Is(err, kerr.InvalidSessionTimeout):
		return &config.Problem{
			Setting: "session-timeout", Found: span.String(cfg.SessionTimeout),
			Need: "to lie within the brokers' group.min.session.timeout.ms and group.max.session.timeout.ms",
		}
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return &config.Problem{
			Setting: "transaction-timeout", Found: span.String(cfg.TransactionTimeout),
			Need: "to be at most the brokers' transaction.max.timeout.ms",
		}
	}
	return err
}
