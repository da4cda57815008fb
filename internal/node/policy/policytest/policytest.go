// Package policytest has the settings that tests of policies share.
package policytest

import (
	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/node/config"
)

// Tenants returns settings with two request topics: timers, which has a tenant, and slow, which has none.
func Tenants() *config.Config {
	cfg := config.Default()
	cfg.Brokers, cfg.Requests, cfg.Targets = []string{"127.0.0.1:9092"}, []string{"timers", "slow"}, []string{"*"}
	p := cfg.PolicyOf("timers")
	p.Targets, p.DefaultTarget, p.DeadLetters = []string{"orders", "mail.*"}, "orders", "failed"
	p.LimitValueBytes, p.LimitRate, p.OverLimit, p.Dialect = 10, 30, config.OverDelay, config.DialectRabbitMQ
	cfg.Tenants = map[string]config.Policy{"timers": p}
	return &cfg
}

// SetOf returns a request topic of four partitions.
func SetOf(name string) topics.Set {
	return topics.Set{Request: topics.Topic{Name: name, Partitions: 4, MaxMessageBytes: 1 << 20}}
}
