package node

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/internal/kafka/calendars"
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/node/config"
)

// openCalendars checks the topic of the group's calendars, and creates it if the settings say so. Without request
// topics there are no timers, hence no calendars.
func openCalendars(ctx context.Context, cfg *config.Config, c *cluster,
	registry *prometheus.Registry) (*calendars.Table, error) {
	if len(cfg.Requests) == 0 {
		return calendars.Of(nil)
	}
	var problems []topics.Problem
	err := c.insist(ctx, "cannot check topics", func() (err error) {
		problems, err = topics.EnsureCalendars(ctx, kadm.NewClient(c.client), cfg.Group, cfg.Requests,
			topics.Options{Create: cfg.CreateTopics, Replication: int16(cfg.ReplicationFactor)})
		return err
	})
	for _, p := range problems {
		c.log.Warn("unsuitable topic setting", "problem", p.String())
	}
	if err != nil {
		return nil, err
	}
	return calendars.New(calendars.Options{
		Client: c.client, Topic: topics.Calendars(cfg.Group), Logger: c.log, Registry: registry,
	}), nil
}
