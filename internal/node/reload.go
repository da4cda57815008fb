package node

import (
	"context"
	"log/slog"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/policy"
)

// reloader takes over the settings that can change while the instance runs.
type reloader struct {
	running  *config.Config // the settings that hold now
	next     <-chan *config.Config
	topics   *servedTopics
	reader   *intake.Reader
	access   *access
	settings *settingsWatch
	rejoin   func() // tells the group of other settings
	log      *slog.Logger
}

// Run takes over new settings until ctx ends.
func (r *reloader) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-r.next:
			r.takeOver(next)
		}
	}
}

// takeOver applies the settings of next that can change without a restart. They hold from the next request on. It logs
// those that wait for a restart.
func (r *reloader) takeOver(next *config.Config) {
	now, later := r.running.Changes(next)
	if len(later) > 0 {
		r.log.Warn("settings have changed that take effect at the next start; the old ones stay until then",
			"settings", later)
	}
	if len(now) == 0 {
		r.log.Info("configuration reloaded, nothing changes now")
		return
	}
	cfg := r.running.Live(next)
	r.running = cfg
	for name, t := range r.topics.requests() {
		t.rules.Replace(policy.Rules(cfg, t.set))
		r.reader.SetQuota(name, policy.Quota(cfg, t.set))
	}
	for _, d := range cfg.Delay {
		if t := r.topics.of(d.Topic); t != nil {
			t.rules.Replace(policy.DelayRules(cfg, d, t.set))
		}
	}
	r.access.use(cfg)
	if r.settings.set(cfg) {
		r.rejoin()
	}
	r.log.Info("configuration reloaded", "changed", now)
}
