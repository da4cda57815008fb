package ownership_test

import (
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/ownership"
)

// The message about a lost changelog first names the way that loses nothing, and says that with
// the other way timers that have fired will fire again.
func TestLostChangelogNamesTheRestoreFirst(t *testing.T) {
	text := ownership.LostChangelog(partlog.Log{Topic: "timers"}, partlog.Log{Topic: "timers.waterclock.changelog"},
		"an offset is committed").Error()
	restore, accept := strings.Index(text, "topics follow --restore"), strings.Index(text, "--accept-lost-changelog")
	if restore < 0 || accept < restore || !strings.Contains(text[accept:], "what has fired fires again") {
		t.Error(text)
	}
}
