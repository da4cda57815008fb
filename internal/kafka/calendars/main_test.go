package calendars

import (
	"testing"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

// must ends the test with an error, if there is one.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
