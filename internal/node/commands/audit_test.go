package commands

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/audit"
	"github.com/waterclock/waterclock/internal/audit/history"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/ownership/membership"
)

// An audit names settings in which instances differ, and relies on events only if all instances write them.
func TestLookAtGroup(t *testing.T) {
	cfg := config.Default()
	cfg.Requests, cfg.Targets, cfg.Events = []string{"timers"}, []string{"orders"}, true
	other, strict := cfg, cfg
	other.Events = false
	strict.LimitHeaders = 2
	member := func(name string, c *config.Config) membership.Member {
		return membership.Member{Process: "p" + name, Name: name, Settings: c.Digest()}
	}
	for _, c := range []struct {
		name    string
		members []membership.Member
		events  bool
		notes   []string
	}{
		{"nobody", nil, true, nil},
		{"alike", []membership.Member{member("a", &cfg), member("b", &cfg)}, true, nil},
		{"one is strict", []membership.Member{member("a", &cfg), member("b", &cfg), member("c", &strict)},
			true, []string{
				"instance c/pc of group waterclock differs from others in limit-headers",
				"instances of group waterclock have others than were given here: limit-headers; give the audit " +
					"their file",
			}},
		{"all are strict", []membership.Member{member("a", &strict)}, true, []string{
			"instances of group waterclock have others than were given here: limit-headers; give the audit their file",
		}},
		{"one writes no events", []membership.Member{member("a", &cfg), member("b", &cfg), member("c", &other)},
			false, []string{
				"instance c/pc of group waterclock differs from others in events",
				"instances of group waterclock have others than were given here: events; give the audit their file",
				"events prove nothing, because not all instances write them: the audit does without",
			}},
		{"an earlier version", []membership.Member{{Process: "p", Name: "a"}}, true, nil},
		{"a name that a terminal obeys", []membership.Member{
			member("a", &cfg), member("b", &cfg), {Process: "\x1b[2J", Name: "c", Settings: strict.Digest()},
		}, true, []string{
			"instance c/?[2J of group waterclock differs from others in limit-headers",
			"instances of group waterclock have others than were given here: limit-headers; give the audit their file",
		}},
	} {
		look := groupSettings{events: true}
		look.compare(&cfg, c.members)
		if look.events != c.events || !slices.Equal(look.notes, c.notes) {
			t.Errorf("%s: events %v, %q", c.name, look.events, look.notes)
		}
	}
}

func TestPrintAudit(t *testing.T) {
	fine := &audit.Report{AsOf: time.Unix(1_790_000_000, 0).UTC(),
		Topics: []audit.TopicReport{{Topic: "timers", Requests: 3,
			Fates: map[history.Fate]int64{history.Fired: 2, history.StillPending: 1}, Emissions: 2, Pending: 1}}}
	place := history.Place{Topic: "orders", Partition: 1, Offset: 7}
	broken := &audit.Report{
		Topics: []audit.TopicReport{{Topic: "timers", Requests: 2, Fates: map[history.Fate]int64{history.Lost: 1,
			history.Unknown: 1}}}, Notes: []string{"mail does not exist"},
		Broken:     map[string]int64{"loss": 1, "early": 2},
		Violations: []history.Violation{{Rule: "loss", ID: "a\xff", Where: []history.Place{place}, Text: "it is gone"}},
	}
	for _, c := range []struct {
		name      string
		report    *audit.Report
		says, not []string
		err       string
	}{
		{"all add up", fine, []string{"as of 2026-09-21T14:13:20Z\n", "timers\n", "| fired   |        2 |",
			"| pending |        1 |", "all add up\n"}, []string{"lost", "not seen"}, ""},
		{"broken", broken, []string{"not seen: mail does not exist\n", "loss: \"a\\xff\": it is gone [orders/1/7]\n"},
			[]string{"all add up"},
			"3 violations: early 2, loss 1\noutcome of 1 requests unknown"},
	} {
		var out strings.Builder
		if err := printAudit(&out, c.report, nil); err != nil {
			t.Fatal(err)
		}
		for _, text := range c.says {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s: %s lacks %q", c.name, out.String(), text)
			}
		}
		for _, text := range c.not {
			if strings.Contains(out.String(), text) {
				t.Errorf("%s: %s has %q", c.name, out.String(), text)
			}
		}
		if err := verdict(c.report, nil); (err == nil) != (c.err == "") ||
			err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
	}
	var out strings.Builder
	if err := printAuditJSON(&out, broken, nil); err != nil {
		t.Fatal(err)
	}
	var got struct {
		AddsUp     bool
		NotSeen    []string
		Violations []struct {
			ID       string
			IDBase64 []byte
			Where    []string
		}
	}
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || got.AddsUp || len(got.NotSeen) != 1 ||
		string(got.Violations[0].IDBase64) != "a\xff" || got.Violations[0].Where[0] != "orders/1/7" {
		t.Errorf("%+v, %v: %s", got, err, out.String())
	}
}
