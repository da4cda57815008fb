package apiserver

import (
	"errors"
	"fmt"
	"slices"

	"github.com/waterclock/waterclock/internal/api/access"
	"github.com/waterclock/waterclock/internal/node/config"
)

// Validate returns what is wrong with the files of callers and of keys that settings name, each a [config.Problem]. It
// goes with [config.Config.Validate], which knows neither format.
func Validate(cfg *config.Config) error {
	wrong := func(setting, path, need string, check func(path string) error) error {
		if path == "" {
			return nil
		}
		if err := check(path); err != nil {
			return &config.Problem{Setting: setting, Found: path,
				Need: fmt.Sprintf("%s: %v", need, config.Pathless(err))}
		}
		return nil
	}
	return errors.Join(
		wrong("api-users", cfg.APIUsers, "a file of callers", access.CheckCallers),
		wrong("api-key-file", cfg.APIKeyFile, "a file with a key", access.CheckKeys))
}

// UnservedGrants returns the grants in api-users that cover no topic of this instance. If the file cannot be read, it
// returns none, because Validate reports that.
func UnservedGrants(cfg *config.Config) []string {
	if cfg.APIUsers == "" {
		return nil
	}
	names, err := access.UnservedGrants(cfg.APIUsers, slices.Concat(cfg.Requests, cfg.DelayTopics()))
	if err != nil {
		return nil
	}
	return names
}
