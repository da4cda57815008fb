package topics

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// sound is a family without problems.
func sound() *family {
	return &family{
		request: found{name: "t", id: uuid(1), partitions: 4, replication: 3, settings: map[string]string{
			cleanupPolicy: "delete", maxMessageBytes: "1048588", minInSync: "2", retention: "604800000",
			deleteRetention: "86400000", timestampType: "CreateTime", uncleanElection: "false",
		}},
		changelog: found{name: "t.waterclock.changelog", id: uuid(2), partitions: 4, replication: 3,
			settings: map[string]string{
				cleanupPolicy: "compact", maxMessageBytes: "1114124", minInSync: "2", deleteRetention: "86400000",
				timestampType: "LogAppendTime", uncleanElection: "false", minCompactionLag: "900000",
			}},
		deadLetters: found{name: "t.waterclock.dead-letters", id: uuid(3), partitions: 4, replication: 3,
			settings: map[string]string{
				cleanupPolicy: "delete", maxMessageBytes: "1114124", minInSync: "2", uncleanElection: "false",
			}},
	}
}

// telling is sound with a topic of events.
func telling() *family {
	t := sound()
	t.events = found{name: "t.waterclock.events", id: uuid(4), partitions: 4, replication: 3,
		settings: map[string]string{
			cleanupPolicy: "delete", maxMessageBytes: "65536", minInSync: "2", uncleanElection: "false",
		}}
	return t
}

func TestVerifyEvents(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *family)
		want   []string // problems; fatal ones say "must be"
	}{
		{"sound", func(*family) {}, nil},
		{"compacted, as configured", func(t *family) {
			t.compactEvents, t.events.settings[cleanupPolicy] = true,
				"compact,delete"
		}, nil},
		{
			"compacted", func(t *family) { t.events.settings[cleanupPolicy] = "compact" },
			[]string{"topic t.waterclock.events: cleanup.policy is compact, should be delete, as configured"},
		},
		{
			"not compacted", func(t *family) { t.compactEvents = true },
			[]string{"topic t.waterclock.events: cleanup.policy is delete, should be compact, as configured"},
		},
		{
			"missing", func(t *family) { t.events = found{name: t.events.name, missing: true} },
			[]string{"topic t.waterclock.events: topic is missing, must be a topic with 4 partitions: let the " +
				"service create it (--create-topics)"},
		},
		{
			"too few partitions", func(t *family) { t.events.partitions = 3 },
			[]string{"topic t.waterclock.events: partitions is 3, must be 4, as of t: " + FollowAdvice + orDelete},
		},
		{
			"too small", func(t *family) { t.events.settings[maxMessageBytes] = "65535" },
			[]string{"topic t.waterclock.events: max.message.bytes is 65535, must be at least 65536"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			family := telling()
			c.change(family)
			var got []string
			for _, check := range family.verify() {
				if !check.OK {
					got = append(got, check.String())
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestVerify(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *family)
		want   []string // problems; fatal ones say "must be"
	}{
		{name: "sound", change: func(*family) {}},
		{
			name:   "no request topic",
			change: func(t *family) { t.request = found{name: "t", missing: true} },
			want: []string{"topic t: topic is missing, must be a topic that your producers write requests to: " +
				"create it, with as many partitions as you will ever need"},
		},
		{
			name:   "request topic is one of ours",
			change: func(t *family) { t.request.name = "a.waterclock.events" },
			want:   []string{`topic a.waterclock.events: name is "a.waterclock.events", must be of at most 225 bytes, and not that of one of the service's own topics`},
		},
		{
			name:   "request topic compacted",
			change: func(t *family) { t.request.settings[cleanupPolicy] = "compact,delete" },
			want:   []string{"topic t: cleanup.policy is compact,delete, must be delete"},
		},
		{
			name:   "request topic kept up to a size",
			change: func(t *family) { t.request.settings[retentionBytes] = "1000000" },
			want: []string{
				"topic t: retention.bytes is 1000000, should be -1: records would be deleted by size, however " +
					"young, before they are read",
			},
		},
		{
			name:   "request topic whose records may be on one disk only",
			change: func(t *family) { t.request.settings[minInSync] = "1" },
			want: []string{
				"topic t: min.insync.replicas is 1, should be at least 2: with 1, acknowledged records may be on " +
					"one disk only, " +
					"and are lost with it",
			},
		},
		{
			name: "two replicas, of which one may be down",
			change: func(t *family) {
				for _, f := range t.all() {
					f.settings[minInSync], f.replication = "1", 2
				}
			},
		},
		{name: "request topic of any size", change: func(t *family) { t.request.settings[retentionBytes] = "-1" }},
		{
			name: "nothing created",
			change: func(t *family) {
				t.changelog = found{name: t.changelog.name, missing: true}
				t.deadLetters = found{name: t.deadLetters.name, missing: true}
			},
			want: []string{
				"topic t.waterclock.changelog: topic is missing, must be a topic with 4 partitions: let the service " +
					"create it (--create-topics)",
				"topic t.waterclock.dead-letters: topic is missing, must be a topic with 4 partitions: let the " +
					"service create it (--create-topics)",
			},
		},
		{
			name: "partitions",
			change: func(t *family) {
				t.changelog.partitions = 3
				t.deadLetters.partitions = 5
			},
			want: []string{
				"topic t.waterclock.changelog: partitions is 3, must be 4, as of t: " + FollowAdvice + orDelete,
				"topic t.waterclock.dead-letters: partitions is 5, must be 4, as of t: give t 5 partitions too" +
					orDelete,
			},
		},
		{
			name:   "replication",
			change: func(t *family) { t.changelog.replication = 2 },
			want:   []string{"topic t.waterclock.changelog: replication is 2, must be at least 3, as of t"},
		},
		{
			name:   "more replicas are fine",
			change: func(t *family) { t.changelog.replication = 5 },
		},
		{
			name: "changelog also deletes",
			change: func(t *family) {
				t.changelog.settings[cleanupPolicy] = "compact,delete"
				t.deadLetters.settings[cleanupPolicy] = "compact"
			},
			want: []string{
				"topic t.waterclock.changelog: cleanup.policy is compact,delete, must be compact",
				"topic t.waterclock.dead-letters: cleanup.policy is compact, must be delete",
			},
		},
		{
			name: "message size",
			change: func(t *family) {
				t.changelog.settings[maxMessageBytes] = "1114123"
				t.deadLetters.settings[maxMessageBytes] = "1048588"
			},
			want: []string{
				"topic t.waterclock.changelog: max.message.bytes is 1114123, must be at least 1114124",
				"topic t.waterclock.dead-letters: max.message.bytes is 1048588, must be at least 1114124",
			},
		},
		{
			name: "message size cannot be larger",
			change: func(t *family) {
				for _, f := range []*found{&t.request, &t.changelog, &t.deadLetters} {
					f.settings[maxMessageBytes] = "2147483647"
				}
			},
		},
		{
			name: "changelog settings",
			change: func(t *family) {
				t.changelog.settings[timestampType] = "CreateTime"
				t.changelog.settings[deleteRetention] = "3599999"
				t.changelog.settings[minCompactionLag] = "0"
				t.changelog.settings[minInSync] = "1"
				t.changelog.settings[uncleanElection] = "true"
			},
			want: []string{
				"topic t.waterclock.changelog: min.insync.replicas is 1, should be at least 2",
				"topic t.waterclock.changelog: unclean.leader.election.enable is true, should be false",
				"topic t.waterclock.changelog: message.timestamp.type is CreateTime, must be LogAppendTime",
				"topic t.waterclock.changelog: delete.retention.ms is 3599999, must be at least 3600000",
				"topic t.waterclock.changelog: min.compaction.lag.ms is 0, should be at least 60000",
			},
		},
		{
			name: "a broker without some settings",
			change: func(t *family) {
				delete(t.changelog.settings, minCompactionLag)
				delete(t.changelog.settings, uncleanElection)
				delete(t.changelog.settings, timestampType)
			},
			want: []string{"topic t.waterclock.changelog: message.timestamp.type is not reported by the broker, " +
				"must be LogAppendTime"},
		},
		{
			name:   "nonsense",
			change: func(t *family) { t.changelog.settings[deleteRetention] = "long" },
			want:   []string{"topic t.waterclock.changelog: delete.retention.ms is long, must be at least 3600000"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			family := sound()
			tt.change(family)
			var got []string
			for _, c := range family.verify() {
				if !c.OK {
					got = append(got, c.Problem.String())
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("\n got %s\nwant %s", strings.Join(got, "\n     "), strings.Join(tt.want, "\n     "))
			}
		})
	}
}

func TestSplit(t *testing.T) {
	checks := []Check{
		{OK: true, Problem: Problem{Topic: "a", Fatal: true}},
		{Problem: Problem{"b", "s", "1", "2", true, false}},
		{Problem: Problem{"c", "s", "1", "2", false, false}},
		{Problem: Problem{"d", "s", "1", "2", true, false}},
	}
	others, err := split(checks)
	if err == nil || err.Error() != "topic b: s is 1, must be 2; topic d: s is 1, must be 2" {
		t.Error(err)
	}
	if len(others) != 1 || others[0].Topic != "c" {
		t.Error(others)
	}
	if _, err := split(checks[:1]); err != nil {
		t.Error(err)
	}
}

func TestTopicOf(t *testing.T) {
	got := sound().set()
	want := Topic{Name: "t.waterclock.changelog", ID: uuid(2), Partitions: 4, MaxMessageBytes: 1114124,
		DeleteRetention: 24 * time.Hour}
	if got.Changelog != want {
		t.Errorf("got %+v, want %+v", got.Changelog, want)
	}
	f := found{settings: map[string]string{retention: "-1", deleteRetention: "9223372036854775807"}}
	if d := f.topic(); d.Retention >= 0 || d.DeleteRetention >= 0 {
		t.Errorf("forever is %v, %v", d.Retention, d.DeleteRetention)
	} else if d := (Settings{DeleteRetention: d.DeleteRetention}); d.MaxAbsence() < 100*365*24*time.Hour {
		t.Errorf("a view is good for %v where deletions are kept forever", d.MaxAbsence())
	}
	if d := got.Settings().MaxAbsence(); d != 12*time.Hour {
		t.Errorf("a view is good for %v", d)
	}
}

func TestSince(t *testing.T) {
	tests := []struct {
		name        string
		change      func(t *family)
		stop, alert []string // topic and setting
	}{
		{name: "as before", change: func(*family) {}},
		{name: "another incarnation", change: func(t *family) { t.changelog.id = uuid(9) },
			stop: []string{"t.waterclock.changelog ID"}},
		{
			name: "more partitions everywhere",
			change: func(t *family) {
				for _, f := range t.all() {
					f.partitions = 8
				}
			},
			stop: []string{"t partitions", "t.waterclock.changelog partitions", "t.waterclock.dead-letters partitions",
				"t.waterclock.events partitions"},
		},
		{
			name:   "more requests partitions alone",
			change: func(t *family) { t.request.partitions = 8 },
			stop:   []string{"t partitions"},
		},
		{name: "policy", change: func(t *family) { t.request.settings[cleanupPolicy] = "compact" },
			stop: []string{"t cleanup.policy"}},
		{name: "gone", change: func(t *family) { t.deadLetters = found{name: t.deadLetters.name, missing: true} },
			stop: []string{"t.waterclock.dead-letters topic"}},
		{name: "events gone", change: func(t *family) { t.events = found{name: t.events.name, missing: true} },
			stop: []string{"t.waterclock.events topic"}},
		{name: "events recreated", change: func(t *family) { t.events.id = uuid(9) }},
		{name: "events compacted", change: func(t *family) { t.events.settings[cleanupPolicy] = "compact" },
			alert: []string{"t.waterclock.events cleanup.policy"}},
		{
			name:   "requests kept up to a size",
			change: func(t *family) { t.request.settings[retentionBytes] = "1000000" },
			alert:  []string{"t retention.bytes"},
		},
		{name: "a smaller retention", change: func(t *family) { t.changelog.settings[deleteRetention] = "1000" },
			alert: []string{"t.waterclock.changelog delete.retention.ms"}},
	}
	names := func(ps []Problem) (out []string) {
		for _, p := range ps {
			out = append(out, p.Topic+" "+p.Setting)
		}
		return out
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			now := telling()
			tt.change(now)
			n := Inspection{Set: now.set(), Checks: now.verify()}
			stop, alert := n.since(telling().set())
			if !slices.Equal(names(stop), tt.stop) || !slices.Equal(names(alert), tt.alert) {
				t.Errorf("stop %q, alert %q; want %q, %q", names(stop), names(alert), tt.stop, tt.alert)
			}
		})
	}
}

// A topic that has more partitions than before has grown: no broker that is behind reports that. All other differences
// may come from one that is.
func TestGrowthIsCertain(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*found)
		want   bool
	}{
		"grown":                   {func(f *found) { f.partitions = 8 }, true},
		"fewer":                   {func(f *found) { f.partitions = 2 }, false},
		"another topic":           {func(f *found) { f.id = uuid(9) }, false},
		"another topic with more": {func(f *found) { f.id, f.partitions = uuid(9), 8 }, false},
		"gone":                    {func(f *found) { *f = found{name: f.name, missing: true} }, false},
		"compacted":               {func(f *found) { f.settings[cleanupPolicy] = "compact" }, false},
		"grown, and is compacted": {func(f *found) { f.partitions, f.settings[cleanupPolicy] = 8, "compact" }, true},
	} {
		now := sound()
		x.change(&now.request)
		stop, _ := (&Inspection{Set: now.set(), Checks: now.verify()}).since(sound().set())
		got := slices.ContainsFunc(stop, func(p Problem) bool { return p.Certain })
		if got != x.want || len(stop) == 0 {
			t.Errorf("%s: certain %v, want %v: %v", name, got, x.want, stop)
		}
	}
}

// TestCreatedIsVerified: the topics that Ensure would create pass its own verification.
func TestCreatedIsVerified(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Minute} {
		createdIsVerified(t, delay)
	}
	family := sound()
	if _, wanted := family.settingsOf(&family.changelog, 3); wanted[minInSync] != "2" {
		t.Errorf("with three replicas, of which one may be down, min.insync.replicas is %q", wanted[minInSync])
	}
	if _, wanted := family.settingsOf(&family.changelog, 1); wanted[minInSync] != "" {
		t.Errorf("one replica, and %s must be in sync", wanted[minInSync])
	}
}

func createdIsVerified(t *testing.T, delay time.Duration) {
	t.Helper()
	for _, least := range []bool{false, true} {
		family := telling()
		family.compactEvents = least
		if family.delay = delay; delay != 0 {
			family.events.name = ""
			family.changelog.name = Checkpoints(family.request.name)
			family.request.settings[timestampType] = "LogAppendTime"
			family.request.settings[retention] = ms(2 * delay)
			family.request.settings[retentionBytes] = "-1"
		}
		for _, own := range family.own() {
			needed, wanted := family.settingsOf(own, 3)
			own.settings = needed
			own.settings[minInSync] = "2"
			if !least {
				maps.Copy(own.settings, wanted)
			}
		}
		for _, c := range family.verify() {
			if !c.OK {
				t.Errorf("least %v: %v", least, c.Problem)
			}
		}
	}
}

// TestVerifyDelayed checks the needs and advice for a fixed-delay topic.
func TestVerifyDelayed(t *testing.T) {
	const delay = time.Minute
	for name, tc := range map[string]struct {
		setting, value string
		fatal, ok      bool
	}{
		"kept forever":             {retention, "-1", false, true},
		"kept for as long":         {retention, "60000", true, false},
		"kept a little longer":     {retention, "60001", false, false},
		"kept for twice the delay": {retention, "120000", false, true},
		"kept up to a size":        {retentionBytes, "1000000", false, false},
		"CreateTime":               {timestampType, "CreateTime", false, false},
		"any time ahead":           {timestampAhead, "9223372036854775807", false, true}, // the brokers' time counts
		"compacted":                {cleanupPolicy, "compact,delete", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			family := sound()
			family.delay, family.changelog.name = delay, Checkpoints(family.request.name)
			for setting, value := range map[string]string{timestampType: "LogAppendTime", retention: "-1",
				retentionBytes: "-1", tc.setting: tc.value} {
				family.request.settings[setting] = value
			}
			var wrong []Check
			for _, c := range family.verify() {
				if !c.OK {
					wrong = append(wrong, c)
				}
			}
			switch {
			case tc.ok && len(wrong) > 0:
				t.Errorf("wrong: %v", wrong)
			case !tc.ok && (len(wrong) != 1 || wrong[0].Setting != tc.setting || wrong[0].Fatal != tc.fatal):
				t.Errorf("wrong: %v, want one of %s, fatal %v", wrong, tc.setting, tc.fatal)
			}
		})
	}
}

// If producers set timestamps, only the leader can reject one that lies far ahead, and it must.
func TestVerifyTimestampsAhead(t *testing.T) {
	for value, want := range map[string]int{"3600000": 1, "1000": 1, "3600001": 2, "9223372036854775807": 2} {
		family := sound()
		family.delay, family.changelog.name = time.Minute, Checkpoints(family.request.name)
		for setting, value := range map[string]string{timestampType: "CreateTime", retention: "-1",
			retentionBytes: "-1", timestampAhead: value} {
			family.request.settings[setting] = value
		}
		wrong := 0
		for _, c := range family.verify() {
			if !c.OK {
				wrong++
			}
		}
		if wrong != want {
			t.Errorf("%s: %d are wrong, want %d, CreateTime among them", value, wrong, want)
		}
	}
}

// uuid is b, b+1, b+2 and so on.
func uuid(b byte) (id [16]byte) {
	for i := range id {
		id[i] = b + byte(i)
	}
	return id
}
