package service

import (
	"context"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/service/policy"
)

// reload takes over what changes while the instance runs, until ctx ends.
func (in *instance) reload(ctx context.Context) error {
	running := in.cfg
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-in.o.Reload:
			running = in.takeOver(running, next)
		}
	}
}

// takeOver makes the settings of next that can change hold from the next request
// on, and says which ones wait for a start. It returns what holds now.
func (in *instance) takeOver(running, next *config.Config) *config.Config {
	now, later := running.Changes(next)
	if len(later) > 0 {
		in.log.Warn("settings have changed that take effect at the next start; the old ones stay until then", "settings", later)
	}
	if len(now) == 0 {
		in.log.Info("the configuration was read again, nothing changes now")
		return running
	}
	cfg := running.Live(next)
	for name, t := range in.topics {
		t.rules.Replace(policy.Rules(cfg, t.set))
		in.reader.SetQuota(name, policy.Quota(cfg, t.set))
	}
	for _, d := range cfg.Delay {
		if t := in.delayed[d.Topic]; t != nil {
			t.rules.Replace(policy.DelayRules(cfg, d, t.set))
		}
	}
	in.access.use(cfg)
	in.log.Info("the configuration was read again and holds from now on", "changed", now)
	return cfg
}
