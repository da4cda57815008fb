package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/rulefmt"
)

// The series here are written by hand: they are what the metrics of docs/METRICS.md would show.
// Those of recorded_test.go were scraped from real incidents.

// Scrapes before an incident, and of all of it.
const (
	before = int(onset / interval)
	during = int(length/interval) - before
)

// always is a series that does not change.
func always(value string) string { return fmt.Sprintf("%sx%d", value, before+during) }

// from is a series that has one value until the incident, and another from then on.
func from(was, is string) string { return fmt.Sprintf("%sx%d %sx%d", was, before-1, is, during) }

// growing is a counter, or the age of something, that grows by step at each scrape from the incident on.
func growing(step string) string { return fmt.Sprintf("0x%d 0+%sx%d", before-1, step, during) }

// once is a counter that grows by one at the incident.
func once() string { return from("0", "1") }

// gone is a series that ends with the incident: Prometheus marks it as stale when a scrape fails, or its target is no
// longer there.
func gone(was string) string { return fmt.Sprintf("%sx%d stale", was, before-1) }

// healthy is two instances that serve two partitions each of one topic.
func healthy() map[string]string {
	s := map[string]string{}
	for _, in := range []string{"wc-0", "wc-1"} {
		add := func(name, more, values string) { s[key(name, in, more)] = values }
		add("up", "", always("1"))
		add("process_start_time_seconds", "", always("-3600"))
		add("waterclock_ready", "", always("1"))
		add("waterclock_topic_partitions", `topic="timers"`, always("4"))
		for _, state := range []string{"acquiring", "replaying", "gated", "stalled", "failed"} {
			add("waterclock_partitions", `topic="timers",state="`+state+`"`, always("0"))
		}
		add("waterclock_partitions", `topic="timers",state="live"`, always("2"))
		add("waterclock_standby_partitions", `topic="timers",state="caught_up"`, always("2"))
		add("waterclock_standby_partitions", `topic="timers",state="behind"`, always("0"))
		for _, severity := range []string{"stop", "alert"} {
			add("waterclock_topic_problems", `topic="timers",severity="`+severity+`"`, always("0"))
		}
		for _, name := range []string{
			"access_problems", "group_foreign", "clock_refused_targets", "unresponsive_brokers", "missing_markers",
			"pauses_total",
			"store_background_errors_total", "partitions_damaged_total", "store_slow_disk_total",
		} {
			add("waterclock_"+name, "", always("0"))
		}
		for _, name := range []string{
			"oldest_uncommitted_seconds", "retention_alerts_total", "requests_lost_total", "requests_cut_total",
			"misplaced_requests_total", "misplaced_timers", "ledger", "queue_entries",
		} {
			add("waterclock_"+name, `topic="timers"`, always("0"))
		}
		add("waterclock_intake_lag_seconds", `topic="timers",partition="0"`, always("0.02"))
		add("waterclock_timers_without_calendar", `topic="timers",partition="0"`, always("0"))
		add("waterclock_dead_letters_total", `topic="timers",reason="target-unknown"`, always("7"))
		for _, reason := range []string{"forward-refused", "unauthenticated"} {
			add("waterclock_api_refused_total", `reason="`+reason+`"`, always("0"))
		}
		add("waterclock_store_free_bytes", "", always("100000000000"))
		add("waterclock_store_disk_bytes", "", always("5000000000"))
		add("waterclock_clock_offset_seconds", "", always("-0.003"))
		add("waterclock_clock_jumps_total", `direction="ahead"`, always("0"))
		for _, le := range []string{"0.1", "1", "5", "10", "+Inf"} {
			steady := fmt.Sprintf("0+1000x%d", before+during)
			add("waterclock_own_lateness_seconds_bucket", `le="`+le+`"`, steady)
			add("waterclock_own_commit_lateness_seconds_bucket", `topic="timers",le="`+le+`"`, steady)
			add("waterclock_transaction_duration_seconds_bucket", `le="`+le+`"`, steady)
		}
	}
	return s
}

// key is a series of an instance.
func key(name, instance, more string) string {
	if more != "" {
		more = "," + more
	}
	return fmt.Sprintf(`%s{job="waterclock",instance="%s"%s}`, name, instance, more)
}

// incident is what changes in the metrics, and the alerts that fire, and no others.
type incident struct {
	name   string
	change func(s map[string]string)
	alerts []string
	within time.Duration // from the onset until the first of alerts fires
	label  string        // name=value that it has; "" for job=waterclock
}

// set changes a series of wc-0.
func set(name, more, values string) func(map[string]string) {
	return func(s map[string]string) { s[key(name, "wc-0", more)] = values }
}

func changes(list ...func(map[string]string)) func(map[string]string) {
	return func(s map[string]string) {
		for _, change := range list {
			change(s)
		}
	}
}

// slow puts observations of a histogram of wc-0, so many of 100, between 5 and 10 s.
func slow(name, labels string, share int) func(map[string]string) {
	return func(s map[string]string) {
		for _, le := range []string{"0.1", "1", "5"} {
			s[key(name+"_bucket", "wc-0", labels+`le="`+le+`"`)] = fmt.Sprintf(
				"0+1000x%d %d+%dx%d", before-1, before*1000, 10*(100-share), during)
		}
	}
}

// teeth is the age of something that is 7 s old at most and then begins anew, as scrapes see it.
func teeth() string {
	age := fmt.Sprintf("0x%d", before-1)
	for i := range during + 1 {
		age += fmt.Sprintf(" %d", i*int(interval.Seconds())%8)
	}
	return age
}

func incidents() []incident {
	const timers = `topic="timers"`
	state := func(of string) string { return timers + `,state="` + of + `"` }
	return []incident{
		{"nothing", func(map[string]string) {}, nil, 0, ""},
		{"a rebalance of 30 s", changes(
			set("waterclock_partitions", state("replaying"), fmt.Sprintf("0x%d 2 2 0x%d", before-1, during)),
			set("waterclock_partitions", state("live"), fmt.Sprintf("2x%d 0 0 2x%d", before-1, during)),
			set("waterclock_ready", "", fmt.Sprintf("1x%d 0 0 1x%d", before-1, during)),
		), nil, 0, ""},

		// Of a broker that is down, nothing needs it: it is replaced.
		{"broker cut off", set("waterclock_unresponsive_brokers", "", from("0", "1")),
			[]string{"WaterclockBrokerUnresponsive"}, 3 * time.Minute, ""},
		{"broker down that leads a changelog: the partition stalls, its timers wait", changes(
			set("waterclock_partitions", state("stalled"), from("0", "1")),
			set("waterclock_partitions", state("live"), from("2", "1")),
			set("waterclock_ready", "", from("1", "0")),
			set("waterclock_oldest_uncommitted_seconds", timers, growing("15")),
		), []string{"WaterclockPartitionNotLive", "WaterclockTimersOverdue"}, 2 * time.Minute, "topic=timers"},
		{"changelog stalled, nothing due", changes(
			set("waterclock_partitions", state("stalled"), from("0", "1")),
			set("waterclock_partitions", state("live"), from("2", "1")),
			set("waterclock_ready", "", from("1", "0")),
		), []string{"WaterclockPartitionNotLive"}, 2 * time.Minute, "instance=wc-0"},
		{"target gone", func(s map[string]string) {
			s[key("waterclock_parked_timers_by_target", "wc-0", timers+`,target="orders",partition="3"`)] = fmt.Sprintf(
				"_x%d 1+100x%d", before, during)
		}, []string{"WaterclockTargetParked"}, 6 * time.Minute, "target=orders"},
		{"target missing for good: dead letters",
			set("waterclock_dead_letters_total", timers+`,reason="target-unknown"`,
				fmt.Sprintf("7x%d 8+1x%d", before-1, during)),
			[]string{"WaterclockDeadLetters"}, time.Minute, "reason=target-unknown"},
		{"disk fills, the instance ends, the other takes over", changes(
			func(s map[string]string) {
				for k, v := range s {
					if strings.Contains(k, `"wc-0"`) { // nothing is scraped eight scrapes after the onset
						s[k] = fmt.Sprintf("%sx%d stale", strings.Fields(v)[0][:strings.IndexAny(v, "x+")], before+7)
					}
				}
			},
			set("up", "", fmt.Sprintf("1x%d 0x%d", before+7, during-8)),
			set("waterclock_store_free_bytes", "", fmt.Sprintf("100000000000x%d 3000000000x7 stale", before-1)),
			func(s map[string]string) {
				s[key("waterclock_partitions", "wc-1", state("live"))] = fmt.Sprintf("2x%d 4x%d", before+7, during-8)
			},
		), []string{"WaterclockDiskNearlyFull", "WaterclockInstanceDown"}, 2 * time.Minute, "instance=wc-0"},
		{"more requests than go through", set("waterclock_intake_lag_seconds", timers+`,partition="0"`, growing("10")),
			[]string{"WaterclockIntakeLag"}, 7 * time.Minute, "topic=timers"},
		{"lag reaches three quarters of the retention, then all of it", changes(
			set("waterclock_intake_lag_seconds", timers+`,partition="0"`, growing("10")),
			set("waterclock_retention_alerts_total", timers, once()),
			set("waterclock_requests_lost_total", timers, fmt.Sprintf("0x%d 1000x%d", before+20, during-21)),
		), []string{"WaterclockRetentionNear", "WaterclockIntakeLag", "WaterclockRequestsLost"}, time.Minute,
			"topic=timers"},
		{"requests lost before the first scrape of a new instance", func(s map[string]string) {
			s[key("waterclock_requests_lost_total", "wc-2", timers)] = fmt.Sprintf("_x%d 12x%d", before, during)
			s[key("process_start_time_seconds", "wc-2", "")] = fmt.Sprintf(
				"_x%d %dx%d", before, int(onset.Seconds())-20, during)
		}, []string{"WaterclockRequestsLost"}, time.Minute, "topic=timers"},

		{"Prometheus finds an instance that lost requests yesterday", func(s map[string]string) {
			s[key("waterclock_requests_lost_total", "wc-2", timers)] = fmt.Sprintf("_x%d 12x%d", before, during)
			s[key("process_start_time_seconds", "wc-2", "")] = fmt.Sprintf("_x%d -80000x%d", before, during)
		}, nil, 0, ""},

		{"an instance is lost, and nobody has taken its partitions", func(s map[string]string) {
			for k, v := range s {
				if strings.Contains(k, `"wc-0"`) {
					s[k] = gone(strings.Fields(v)[0][:strings.IndexAny(v, "x+")])
				}
			}
		}, []string{"WaterclockPartitionsUnowned"}, 2 * time.Minute, "topic=timers"},
		{"all instances are lost", func(s map[string]string) {
			for k, v := range s {
				s[k] = gone(strings.Fields(v)[0][:strings.IndexAny(v, "x+")])
			}
		}, []string{"WaterclockAbsent"}, 2 * time.Minute, ""},
		{"all instances of one group are lost, and another group runs", func(s map[string]string) {
			for k, v := range maps.Clone(s) {
				s[k] = gone(strings.Fields(v)[0][:strings.IndexAny(v, "x+")])
				s[strings.Replace(k, `job="waterclock"`, `job="waterclock-2"`, 1)] = v
			}
		}, []string{"WaterclockAbsent"}, 2 * time.Minute, ""},
		{"not a member of the group", changes(
			set("waterclock_ready", "", from("1", "0")),
			set("waterclock_partitions", state("live"), from("2", "0")),
			func(s map[string]string) {
				s[key("waterclock_partitions", "wc-1", state("live"))] = from("2", "4")
			},
		), []string{"WaterclockNotReady"}, 2 * time.Minute, "instance=wc-0"},
		{"another program has the group", changes(
			set("waterclock_ready", "", from("1", "0")),
			set("waterclock_group_foreign", "", from("0", "1")),
			set("waterclock_partitions", state("live"), from("2", "0")),
			func(s map[string]string) {
				s[key("waterclock_partitions", "wc-1", state("live"))] = from("2", "4")
			},
		), []string{"WaterclockGroupForeign"}, 2 * time.Minute, "instance=wc-0"},
		{"the request topic is recreated", changes(
			set("waterclock_topic_problems", timers+`,severity="stop"`, from("0", "1")),
			set("waterclock_partitions", state("failed"), from("0", "2")),
			set("waterclock_partitions", state("live"), from("2", "0")),
			set("waterclock_ready", "", from("1", "0")),
		), []string{"WaterclockTopicStopped", "WaterclockPartitionNotLive"}, time.Minute, "topic=timers"},
		{"unclean elections are switched on", set("waterclock_topic_problems", timers+`,severity="alert"`,
			from("0", "1")), []string{"WaterclockTopicSettings"}, 16 * time.Minute, "topic=timers"},
		{"an instance is started with other targets", func(s map[string]string) {
			for _, in := range []string{"wc-0", "wc-1"} { // both say so
				s[key("waterclock_settings_differing", in, `setting="targets"`)] = fmt.Sprintf(
					"_x%d 1x%d", before, during)
			}
		}, []string{"WaterclockSettingsDiffer"}, 17 * time.Minute, "setting=targets"},
		{"instances get other settings one after the other", func(s map[string]string) {
			s[key("waterclock_settings_differing", "wc-0", `setting="targets"`)] = fmt.Sprintf(
				"_x%d 1x20 _x%d", before, during-20)
		}, nil, 0, ""},
		{"a right is taken away", changes(
			set("waterclock_access_problems", "", from("0", "1")), set("waterclock_ready", "", from("1", "0")),
		), []string{"WaterclockAccessDenied"}, 2 * time.Minute, "instance=wc-0"},
		{"commits hang", set("waterclock_oldest_uncommitted_seconds", timers, growing("15")),
			[]string{"WaterclockTimersOverdue"}, 2 * time.Minute, "topic=timers"},
		{"short of processor time", changes(
			slow("waterclock_own_lateness_seconds", "", 20),
			slow("waterclock_own_commit_lateness_seconds", timers+",", 20),
		), []string{"WaterclockLate"}, 13 * time.Minute, "topic=timers"},
		{"consumers wait 7 s for each timer, all sealed in time", changes(
			set("waterclock_oldest_uncommitted_seconds", timers, teeth()),
			slow("waterclock_own_commit_lateness_seconds", timers+",", 100),
		), []string{"WaterclockLate"}, 13 * time.Minute, "topic=timers"},
		{"a slow broker", changes(
			slow("waterclock_transaction_duration_seconds", "", 20),
			slow("waterclock_own_commit_lateness_seconds", timers+",", 20),
		), []string{"WaterclockTransactionsSlow", "WaterclockLate"}, 13 * time.Minute, "instance=wc-0"},
		{"a producer's transaction stays open", func(s map[string]string) {
			s[key("waterclock_intake_held_seconds", "wc-0",
				timers+`,partition="2",producer_id="4711",transactional_id="billing-3"`)] = fmt.Sprintf(
				"_x%d 2+15x%d", before, during)
		}, []string{"WaterclockIntakeHeld"}, 2 * time.Minute, "transactional_id=billing-3"},
		{"a request log is cut", set("waterclock_requests_cut_total", timers, from("0", "40")),
			[]string{"WaterclockRequestsCut"}, time.Minute, "topic=timers"},
		{"the clock is hours ahead: set, and refused by targets", changes(
			set("waterclock_clock_jumps_total", `direction="ahead"`, once()),
			set("waterclock_clock_offset_seconds", "", from("-0.003", "7200")),
			set("waterclock_clock_refused_targets", "", from("0", "3")),
			set("waterclock_ready", "", from("1", "0")),
		), []string{"WaterclockClockJumped", "WaterclockClockRefused", "WaterclockClockOff"}, time.Minute,
			"direction=ahead"},
		{"another partitioner", changes(
			set("waterclock_misplaced_requests_total", timers, growing("3")),
			set("waterclock_misplaced_timers", timers, from("0", "5")),
		), []string{"WaterclockMisplacedRequests", "WaterclockMisplacedTimers"}, time.Minute, "topic=timers"},
		{"a calendar that timers name is deleted", set("waterclock_timers_without_calendar",
			`topic="timers",partition="0"`, from("0", "40")), []string{"WaterclockCalendarMissing"}, 6 * time.Minute,
			"topic=timers"},
		{"keys of the API differ", set("waterclock_api_refused_total", `reason="forward-refused"`, growing("2")),
			[]string{"WaterclockPeersRefused"}, time.Minute, "reason=forward-refused"},
		{"a stranger calls the API", set("waterclock_api_refused_total", `reason="unauthenticated"`, growing("2")),
			nil, 0, ""},
		{"copies are made for ten minutes", changes(
			set("waterclock_standby_partitions", state("caught_up"),
				fmt.Sprintf("2x%d 0x40 2x%d", before-1, during-42)),
			set("waterclock_standby_partitions", state("behind"), fmt.Sprintf("0x%d 2x40 0x%d", before-1, during-42)),
		), nil, 0, ""},
		{"a copy does not catch up", changes(
			set("waterclock_standby_partitions", state("caught_up"), from("2", "1")),
			set("waterclock_standby_partitions", state("behind"), from("0", "1")),
		), []string{"WaterclockStandbyBehind"}, 16 * time.Minute, "instance=wc-0"},
		{"a marker is missing", set("waterclock_missing_markers", "", from("0", "1")),
			[]string{"WaterclockMissingMarkers"}, 6 * time.Minute, "instance=wc-0"},
		{"flushes fail", set("waterclock_store_background_errors_total", "", once()),
			[]string{"WaterclockStoreFailing"}, time.Minute, "instance=wc-0"},
		{"a table is damaged", set("waterclock_partitions_damaged_total", "", once()),
			[]string{"WaterclockStoreDamaged"}, time.Minute, "instance=wc-0"},
		{"the disk is slow", set("waterclock_store_slow_disk_total", "", once()), []string{"WaterclockDiskSlow"},
			time.Minute, "instance=wc-0"},
		{"free space is not known", set("waterclock_store_free_bytes", "", from("100000000000", "-1")), nil, 0, ""},
		{"the machine is suspended", set("waterclock_pauses_total", "", once()), []string{"WaterclockPaused"},
			time.Minute, "instance=wc-0"},
		{"a bug in the books", set("waterclock_ledger", timers, from("0", "-2")), []string{"WaterclockLedger"},
			6 * time.Minute, "topic=timers"},
		{"load: the books are not closed while requests are on their way", changes(
			set("waterclock_ledger", timers, from("0", "12")),
			set("waterclock_queue_entries", timers, from("0", "300")),
		), nil, 0, ""},
	}
}

// Each incident raises its alerts, in time, and no other; nothing fires before it.
func TestIncidentsRaiseTheirAlerts(t *testing.T) {
	for _, c := range incidents() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			series := healthy()
			c.change(series)
			first, shown := firing(t, series)
			if got := slices.Sorted(maps.Keys(first)); !slices.Equal(got, slices.Sorted(slices.Values(c.alerts))) {
				t.Fatalf("%q fire, want %q", got, c.alerts)
			}
			for name, at := range first {
				if at < onset {
					t.Errorf("%s fires at %s, before the incident", name, at)
				}
			}
			if len(c.alerts) == 0 {
				return
			}
			name := c.alerts[0]
			if late := first[name] - onset; late > c.within {
				t.Errorf("%s fires %s after the onset, want %s at most", name, late, c.within)
			}
			label, value, ok := strings.Cut(c.label, "=")
			if !ok {
				label, value = "job", "waterclock"
			}
			if got := shown[name].Get(label); got != value {
				t.Errorf("%s has %s=%q, want %q", name, label, got, value)
			}
		})
	}
}

// A Prometheus that has never found an instance says so.
func TestNothingWasEverScraped(t *testing.T) {
	if first, _ := firing(t, map[string]string{}); len(first) != 1 || first["WaterclockAbsent"] == 0 {
		t.Errorf("%v fire", first)
	}
}

// Each alert fires in some incident, and each metric that a rule asks for is among those of the incidents: otherwise
// "no other alert fires" would say nothing of it.
func TestIncidentsCoverAllRules(t *testing.T) {
	fires, there := map[string]bool{}, map[string]bool{}
	for _, c := range incidents() {
		for _, name := range c.alerts {
			fires[name] = true
		}
		series := healthy()
		c.change(series)
		for name := range series {
			there[name[:strings.IndexByte(name, '{')]] = true
		}
	}
	p := newParser()
	groups, errs := rulefmt.ParseFile(ruleFile, false, model.UTF8Validation, p, promslog.NewNopLogger())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if !fires[r.Alert] {
				t.Errorf("%s fires in no incident", r.Alert)
			}
			expr, err := p.ParseExpr(r.Expr)
			if err != nil {
				t.Fatal(err)
			}
			for _, selector := range parser.ExtractSelectors(expr) {
				for _, m := range selector {
					if m.Name == model.MetricNameLabel && !there[m.Value] {
						t.Errorf("%s asks for %s, which no incident has", r.Alert, m.Value)
					}
				}
			}
		}
	}
}
