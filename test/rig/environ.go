package rig

import (
	"os"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/node/config"
)

// Environ returns this process's environment without the variables that control tests
// and CI: they look like settings, and the program refuses settings that it does not
// know.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, config.EnvPrefix) })
}
