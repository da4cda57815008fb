package ops

import (
	"runtime/debug"
	"strings"
	"testing"
)

func TestBuild(t *testing.T) {
	info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
	}}
	if got := buildOf(info).String(); !strings.HasPrefix(got,
		"waterclock v1.2.3 (revision 0123456789ab, modified), go1.") {
		t.Error(got)
	}
	if got := buildOf(&debug.BuildInfo{}).String(); !strings.HasPrefix(got, "waterclock unknown, go1.") {
		t.Error(got)
	}
}
