package rig

import (
	"flag"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/waterclock/waterclock/internal/config"
)

// environ is this process's environment without the variables that tests and CI
// are steered by: they look like settings, and the program refuses those that it
// does not know.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, config.EnvPrefix) })
}

// Parallel has up to n parallel tests run at once, unless -parallel says another
// number. It is for TestMain, where tests wait most of their time: for what is
// due, for sessions that end.
func Parallel(n int) {
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}
