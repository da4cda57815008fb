package monitoring

import (
	"strings"
	"time"
)

// grows is true if a counter has grown within the last ten minutes. increase() does not see the growth of a series
// that begins above 0, which happens if an instance counts before it is first scraped; the second part does. It
// checks when the process started: counters that are new only to Prometheus, because it was down or is new itself,
// have not grown now.
func grows(counter string) string {
	return strings.ReplaceAll("increase(C[10m]) > 0 or ((C > 0 unless C offset 10m) and on (job, instance) time() - "+
		"process_start_time_seconds < 600)", "C", counter)
}

// Alerts returns all alerts, the most general ones first.
//
// They are aggregated by job, because one Prometheus may watch several groups whose topics have the same names. A
// cause that has its own alert does not raise WaterclockNotReady too; its effect on timers, WaterclockTimersOverdue,
// is raised in any case.
func Alerts() []Alert {
	const minute = time.Minute
	return []Alert{
		{
			"WaterclockAbsent",
			`absent_over_time(waterclock_ready[1d]) or ` +
				`(count by (job) (last_over_time(waterclock_ready[1d])) unless count by (job) (waterclock_ready))`,
			minute, Critical,
			"No instance of waterclock is scraped: no timer fires, or Prometheus does not find them.",
		},
		{
			"WaterclockInstanceDown", `up{job=~".*waterclock.*"} == 0`, minute, Warning,
			"{{ $labels.instance }} does not answer Prometheus; the others have taken over its partitions.",
		},
		{
			"WaterclockPartitionsUnowned",
			`sum by (job, topic) (waterclock_partitions) < max by (job, topic) (waterclock_topic_partitions)`,
			minute, Critical,
			"Only {{ $value }} partitions of {{ $labels.topic }} have an owner: the timers of the others do not fire.",
		},
		{
			"WaterclockPartitionNotLive",
			`sum by (job, instance, topic) (waterclock_partitions{state!="live"}) > 0`, minute, Critical,
			"{{ $labels.instance }} owns {{ $value }} partitions of {{ $labels.topic }} that are not live.",
		},
		{
			"WaterclockTopicStopped",
			`max by (job, topic) (waterclock_topic_problems{severity="stop"}) > 0`, 0, Critical,
			"{{ $labels.topic }} was deleted, recreated, or given more partitions or another cleanup policy; it is " +
				"stopped.",
		},
		{
			"WaterclockTopicSettings",
			`max by (job, topic) (waterclock_topic_problems{severity="alert"}) > 0`, 15 * minute, Warning,
			"{{ $labels.topic }}, or a topic that belongs to it, has a setting that is not safe; the log says which.",
		},
		{
			"WaterclockSettingsDiffer",
			`max by (job, setting) (waterclock_settings_differing) > 0`, 15 * minute, Warning,
			"Instances differ in {{ $labels.setting }}: what happens to a timer depends on the owner of its partition.",
		},
		{
			"WaterclockAccessDenied", `max by (job, instance) (waterclock_access_problems) > 0`, minute, Critical,
			"The brokers deny {{ $labels.instance }} a right or a login.",
		},
		{
			"WaterclockGroupForeign", `max by (job, instance) (waterclock_group_foreign) > 0`, minute, Critical,
			"Programs that are not instances of this version use the group of {{ $labels.instance }}; mostly it is " +
				"kept out.",
		},
		{
			"WaterclockNotReady",
			`waterclock_ready == 0` +
				` unless on (job, instance) (waterclock_partitions{state!="live"} > 0)` +
				` unless on (job, instance) (waterclock_topic_problems{severity="stop"} > 0)` +
				` unless on (job, instance) (waterclock_access_problems > 0)` +
				` unless on (job, instance) (waterclock_group_foreign > 0)` +
				` unless on (job, instance) (waterclock_clock_refused_targets > 0)`, minute, Critical,
			"{{ $labels.instance }} is not ready, for a reason without an alert of its own: mostly it is not in " +
				"its group.",
		},
		{
			"WaterclockTimersOverdue",
			`max by (job, topic) (waterclock_oldest_uncommitted_seconds) > 5`, minute, Critical,
			"A timer of {{ $labels.topic }} has been due for {{ $value | humanizeDuration }} and has not fired.",
		},
		{
			"WaterclockLate",
			`histogram_quantile(0.99, sum by (job, topic, le) (rate(waterclock_own_commit_lateness_seconds_bucket[5m]))) > 1`, 10 * minute, Warning,
			"Consumers get one of 100 timers of {{ $labels.topic }} later than {{ $value | humanizeDuration }} by " +
				"the service's own doing.",
		},
		{
			"WaterclockTransactionsSlow",
			`histogram_quantile(0.99, sum by (job, instance, le) (rate(waterclock_transaction_duration_seconds_bucket[5m]))) > 1`, 10 * minute, Warning,
			"One of 100 transactions of {{ $labels.instance }} takes longer than {{ $value | humanizeDuration }}.",
		},
		{
			"WaterclockIntakeLag",
			`max by (job, topic) (waterclock_intake_lag_seconds) > 30`, 5 * minute, Warning,
			"Requests on {{ $labels.topic }} are read {{ $value | humanizeDuration }} late; a cancel written now " +
				"may come too late.",
		},
		{
			"WaterclockIntakeHeld",
			`max by (job, topic, partition, producer_id, transactional_id) (waterclock_intake_held_seconds) > 60`,
			0, Critical,
			"A producer keeps a transaction open on partition {{ $labels.partition }} of {{ $labels.topic }}; no " +
				"request behind it is read.",
		},
		{
			"WaterclockRetentionNear", sum("topic", grows("waterclock_retention_alerts_total")), 0, Critical,
			"Requests on {{ $labels.topic }} are read so late that retention may soon delete unread ones.",
		},
		{
			"WaterclockRequestsLost", sum("topic", grows("waterclock_requests_lost_total")), 0, Critical,
			"Retention has deleted requests on {{ $labels.topic }} before they were read.",
		},
		{
			"WaterclockRequestsCut", sum("topic", grows("waterclock_requests_cut_total")), 0, Critical,
			"The log of {{ $labels.topic }} was cut and has grown again; requests there are not read.",
		},
		{
			"WaterclockTargetParked",
			`sum by (job, topic, target) (waterclock_parked_timers_by_target) > 0`, 5 * minute, Critical,
			"{{ $value }} timers of {{ $labels.topic }} wait for the target {{ $labels.target }}, which takes no " +
				"writes.",
		},
		{
			"WaterclockClockRefused", `max by (job, instance) (waterclock_clock_refused_targets) > 0`, minute, Critical,
			"{{ $value }} target partitions refuse the time of the clock of {{ $labels.instance }}.",
		},
		{
			"WaterclockDeadLetters", sum("topic, reason", grows("waterclock_dead_letters_total")), 0, Warning,
			"Requests or firings of {{ $labels.topic }} became dead letters: {{ $labels.reason }}.",
		},
		{
			"WaterclockMisplacedRequests", sum("topic", grows("waterclock_misplaced_requests_total")), 0, Warning,
			"A producer to {{ $labels.topic }} uses another partitioner than murmur2; its cancels may miss.",
		},
		{
			"WaterclockMisplacedTimers", `sum by (job, topic) (waterclock_misplaced_timers) > 0`, 15 * minute, Warning,
			"Cancels and replacements of {{ $value }} pending timers of {{ $labels.topic }} miss them.",
		},
		{
			"WaterclockPeersRefused",
			sum("reason", grows(`waterclock_api_refused_total{reason=~"forward-refused|unknown-caller"}`)), 0, Warning,
			"Instances refuse each other's calls: {{ $labels.reason }}.",
		},
		{
			"WaterclockStandbyBehind",
			`sum by (job, instance, topic) (waterclock_standby_partitions{state="behind"}) > 0`, 15 * minute, Warning,
			"{{ $labels.instance }} has not caught up with {{ $value }} partitions of {{ $labels.topic }} that it " +
				"follows.",
		},
		{
			"WaterclockCalendarMissing",
			`sum by (job, topic) (waterclock_timers_without_calendar) > 0`, 5 * minute, Warning,
			"{{ $value }} timers of {{ $labels.topic }} name a calendar that does not exist, which excludes nothing.",
		},
		{
			"WaterclockBrokerUnresponsive", `max by (job) (waterclock_unresponsive_brokers) > 0`, 2 * minute, Warning,
			"{{ $value }} brokers are paused or cut off.",
		},
		{
			"WaterclockMissingMarkers", `max by (job, instance) (waterclock_missing_markers) > 0`, 5 * minute, Warning,
			"{{ $value }} partitions lost their leader while a transaction on them ended.",
		},
		{
			"WaterclockDiskNearlyFull",
			`waterclock_store_free_bytes < waterclock_store_disk_bytes + 256 * 1024 * 1024 and waterclock_store_free_bytes >= 0`, minute, Critical,
			"The disk of {{ $labels.instance }} has {{ $value | humanize1024 }}B left; the instance ends when it " +
				"is full.",
		},
		{
			"WaterclockStoreFailing",
			sum("instance", grows("waterclock_store_background_errors_total")), 0, Warning,
			"Writes to the disk of {{ $labels.instance }} fail.",
		},
		{
			"WaterclockStoreDamaged",
			sum("instance", grows("waterclock_partitions_damaged_total")), 0, Warning,
			"Data on the disk of {{ $labels.instance }} was damaged; its partitions were replayed.",
		},
		{
			"WaterclockDiskSlow", sum("instance", grows("waterclock_store_slow_disk_total")), 0, Warning,
			"Operations on the disk of {{ $labels.instance }} took more than 5 s.",
		},
		{
			"WaterclockClockOff", `max by (job, instance) (abs(waterclock_clock_offset_seconds)) > 0.5`,
			5 * minute, Warning,
			"The clock of {{ $labels.instance }} is {{ $value | humanizeDuration }} off the brokers' clock.",
		},
		{
			"WaterclockClockJumped", sum("instance, direction", grows("waterclock_clock_jumps_total")), 0, Warning,
			"The clock of {{ $labels.instance }} was set {{ $labels.direction }}.",
		},
		{
			"WaterclockPaused", sum("instance", grows("waterclock_pauses_total")), 0, Warning,
			"{{ $labels.instance }} did not run for 5 s or more.",
		},
		{
			"WaterclockLedger", `waterclock_ledger != 0 and waterclock_queue_entries == 0`, 5 * minute, Warning,
			"{{ $labels.instance }} counts {{ $value }} timers of {{ $labels.topic }} that it does not have: a bug.",
		},
	}
}

// sum returns the sum of expr by job and further labels.
func sum(labels, expr string) string { return "sum by (job, " + labels + ") (" + expr + ")" }
