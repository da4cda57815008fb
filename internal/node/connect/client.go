package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/node/config"
)

const (
	// CommandTimeout bounds the requests of a command to a cluster.
	CommandTimeout = 30 * time.Second
	// commandID is the client ID of commands.
	commandID = "waterclock-cli"
)

// CommandOptions returns the options of a command's clients. Such a client logs nothing, because the command returns an
// error.
func CommandOptions(cfg *config.Config) ([]kgo.Opt, error) {
	return Options(cfg, commandID, slog.New(slog.DiscardHandler))
}

// Open returns the client of a command, with more options, once a broker has answered.
func Open(ctx context.Context, cfg *config.Config, more ...kgo.Opt) (*kgo.Client, error) {
	opts, err := CommandOptions(cfg)
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(
		append(append(opts, kgo.RetryTimeout(connectTimeout), kgo.UnknownTopicRetries(2)), more...)...)
	if err != nil {
		return nil, fmt.Errorf("build client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, CommandTimeout)
	defer cancel()
	if err = cl.Ping(ctx); err == nil {
		return cl, nil
	}
	cl.Close()
	if sentence := Refusal(cfg, err); sentence != "" {
		return nil, errors.New(sentence)
	}
	brokers := strings.Join(cfg.Brokers, ", ")
	if errors.Is(err, io.EOF) && cfg.SASLMechanism != config.SASLNone {
		return nil, fmt.Errorf(
			"the brokers at %s close the connection when %s begins: that port may want no login, or TLS; "+
				"or they are starting or stopping", brokers, cfg.SASLMechanism)
	}
	return nil, fmt.Errorf("no broker can be reached at %s: %w", brokers, err)
}
