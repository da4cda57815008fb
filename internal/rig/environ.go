package rig

import (
	"os"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/config"
)

// environ is this process's environment without the variables that tests and CI
// are steered by: they look like settings, and the program refuses those that it
// does not know.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, config.EnvPrefix) })
}
