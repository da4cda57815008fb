package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/config"
)

// sendTimeout bounds a command that talks to a cluster.
const sendTimeout = 30 * time.Second

// reached returns a client to which a broker has answered.
func reached(ctx context.Context, cfg *config.Config) (*kgo.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	cl, err := commandClient(cfg)
	if err != nil {
		return nil, err
	}
	if err := reach(ctx, cfg, cl); err != nil {
		cl.Close()
		return nil, err
	}
	return cl, nil
}

// reach sees to it that a broker answers; its error is a sentence.
func reach(ctx context.Context, cfg *config.Config, cl *kgo.Client) error {
	err := cl.Ping(ctx)
	if err == nil {
		return nil
	}
	if sentence := refusal(cfg, err); sentence != "" {
		return errors.New(sentence)
	}
	return fmt.Errorf("no broker can be reached at %s: %w", strings.Join(cfg.Brokers, ", "), err)
}

// commandClientID is the client ID of commands.
const commandClientID = "waterclock-cli"

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func commandClient(cfg *config.Config) (*kgo.Client, error) {
	opts, err := clientOptions(cfg, commandClientID, discard())
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(opts, kgo.RetryTimeout(connectTimeout), kgo.UnknownTopicRetries(2), kgo.RecordPartitioner(chosen{}))...)
	if err != nil {
		return nil, fmt.Errorf("build client: %w", err)
	}
	return cl, nil
}

// byKey, as a record's partition, leaves the choice to the record's key.
const byKey = -1

// chosen is a partitioner that takes the partition of the record or, if that is byKey, of its key.
type chosen struct{}

// ForTopic implements kgo.Partitioner.
func (chosen) ForTopic(topic string) kgo.TopicPartitioner {
	return chosenOf{kgo.StickyKeyPartitioner(nil).ForTopic(topic)}
}

type chosenOf struct{ kgo.TopicPartitioner }

// Partition implements kgo.TopicPartitioner.
func (p chosenOf) Partition(r *kgo.Record, n int) int {
	if r.Partition != byKey {
		return int(r.Partition) // out of range fails the record
	}
	return p.TopicPartitioner.Partition(r, n)
}
