package kafkatest

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"
)

// envRole makes the test binary play a part in a test instead of running tests.
const envRole = "WATERCLOCK_KAFKATEST_ROLE"

// waitLimit bounds every wait of a test: brokers are slower if other work runs beside them.
const waitLimit = time.Minute

func TestMain(m *testing.M) {
	switch os.Getenv(envRole) {
	case "leaky":
		go spin()
		Main(LeakFree{m})
	default:
		Main(m)
	}
}

func spin() {
	for n := uint64(1); n != 0; n += 2 { // odd: never 0
	}
}

// self returns a command that runs this test binary in another role.
func self(role string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), envRole+"="+role)
	return cmd
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}
