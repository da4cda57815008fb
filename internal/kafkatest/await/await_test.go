package await

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fatal is a test that panics with the message of Fatal.
type fatal struct{ testing.TB }

func (f fatal) Helper()                           {}
func (f fatal) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		come := func() bool { return time.Since(start) >= time.Second }
		if took := Until(t, time.Second, "a second", come); took < time.Second || took > time.Second+latest {
			t.Errorf("took %s, want 1s and a little", took)
		}
		if took := Until(t, 0, "what is so already", come); took != 0 {
			t.Errorf("took %s, want 0", took)
		}
		defer func() {
			if said := fmt.Sprint(recover()); !strings.Contains(said, "the moon") || !strings.Contains(said, "3s") {
				t.Errorf("ended with %q, want what and the limit", said)
			}
			if took := time.Since(start); took < 4*time.Second || took > 4*time.Second+2*latest {
				t.Errorf("gave up after %s, want 3s", took-time.Second)
			}
		}()
		Until(fatal{t}, 3*time.Second, "the moon", func() bool { return false })
	})
}
