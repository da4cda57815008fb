package monitoring

// Dashboards returns all dashboards.
func Dashboards() []Dashboard {
	return []Dashboard{overview(), partitions(), targets(), tenants(), api()}
}

// quantile returns the q-quantile of a histogram by one label.
func quantile(q, histogram, selector, by string) string {
	return "histogram_quantile(" + q + ", sum by (" + by + ", le) (rate(" + histogram + "_bucket" + selector +
		"[$__rate_interval])))"
}

// rate returns a counter's growth per second by some labels.
func rate(counter, selector, by string) string {
	return "sum by (" + by + ") (rate(" + counter + selector + "[$__rate_interval]))"
}

func graph(title string, unit Unit, help string, queries ...Query) Panel {
	return Panel{title, help, Graph, unit, queries}
}

func number(title string, unit Unit, help, expr string) Panel {
	return Panel{title, help, Number, unit, []Query{{expr, ""}}}
}

func overview() Dashboard {
	return Dashboard{"overview", "Overview", false, []Row{
		{"State", []Panel{
			number("Instances ready", Count, "Members of their group whose partitions are all live.",
				"sum(waterclock_ready{*})"),
			number("Partitions without an owner", Count, "Their timers do not fire.",
				"sum(max by (job, topic) (waterclock_topic_partitions{*})) - sum(waterclock_partitions{*})"),
			number("Partitions not live", Count, "Owned, and not served yet.",
				`sum(waterclock_partitions{*,state!="live"})`),
			number("Pending", Count, "Timers that wait for their time.", "sum(waterclock_pending_timers{*})"),
			number("Overdue", Seconds, "For how long the oldest timer has been due that has not fired.",
				"max(waterclock_oldest_uncommitted_seconds{*})"),
			number("Parked", Count, "Timers whose target takes no writes.", "sum(waterclock_parked_timers{*})"),
		}},
		{"Timers", []Panel{
			graph("Outcomes", PerSecond, "Committed decisions, by outcome.",
				Query{rate("waterclock_outcomes_total", "{*}", "outcome"), "{{outcome}}"}),
			graph("Lateness of firings", Seconds, "From the due time until read_committed consumers see the firing. "+
				"Requests for the past count with their whole age.",
				Query{quantile("0.5", "waterclock_commit_lateness_seconds", "{*}", "job"), "{{job}} p50"},
				Query{quantile("0.99", "waterclock_commit_lateness_seconds", "{*}", "job"), "{{job}} p99"}),
			graph("Lateness of the service's own", Seconds, "The same, but from when a request was read if that was "+
				"later. It stays low under overload, when requests are read late. To the seal: without the wait for "+
				"the commit.",
				Query{quantile("0.5", "waterclock_own_commit_lateness_seconds", "{*}", "job"), "{{job}} p50"},
				Query{quantile("0.99", "waterclock_own_commit_lateness_seconds", "{*}", "job"), "{{job}} p99"},
				Query{quantile("0.99", "waterclock_own_lateness_seconds", "{*}", "job"), "{{job}} p99 to the seal"}),
			graph("Oldest due timer", Seconds,
				"Not planned: the service does not keep up. Not committed: its steps take too long.",
				Query{"max by (topic) (waterclock_oldest_due_seconds{*})", "{{topic}} not planned"},
				Query{"max by (topic) (waterclock_oldest_uncommitted_seconds{*})", "{{topic}} not committed"}),
			graph("Pending timers", Count, "By request topic.",
				Query{"sum by (topic) (waterclock_pending_timers{*})", "{{topic}}"}),
		}},
		{"What saturates first", []Panel{
			graph("Busy shares", Share, "1 is all that there is. Planners: of the busiest partition. Lanes: of "+
				"those allowed. Transactions: how full they are.",
				Query{"max by (instance) (rate(waterclock_planning_seconds_total{*}[$__rate_interval]))",
					"{{instance}} planners"},
				Query{"sum by (instance) (rate(waterclock_lanes_busy_seconds_total{*}[$__rate_interval])) / sum by " +
					"(instance) (waterclock_lanes_allowed{*})", "{{instance}} lanes"},
				Query{"sum by (instance) (rate(waterclock_transactions_filled_total{*}[$__rate_interval])) / sum by " +
					"(instance) (rate(waterclock_transactions_total{*,outcome=\"committed\"}[$__rate_interval]))",
					"{{instance}} transactions"}),
			graph("Waits", Seconds, "How late requests are read, and how long they then wait to be planned.",
				Query{"max by (topic) (waterclock_intake_lag_seconds{*})", "{{topic}} read"},
				Query{quantile("0.99", "waterclock_planning_wait_seconds", "{*}", "instance"),
					"{{instance}} planned, p99"}),
			graph("Load to come", Count, "Pending timers that fall due within a time from now.",
				Query{"sum by (window) (waterclock_due_within{*})", "{{window}}"}),
		}},
		{"Transactions", []Panel{
			graph("Transactions", PerSecond,
				"Aborted steps are planned again; fenced ones belonged to partitions that went elsewhere.",
				Query{rate("waterclock_transactions_total", "{*}", "outcome"), "{{outcome}}"}),
			graph("Lanes", Count,
				"Loops of transactions that run side by side: more join while the steps of those there are full.",
				Query{"sum by (instance) (waterclock_lanes{*})", "{{instance}}"}),
			graph("Duration of transactions", Seconds, "From sealing a step to its known outcome.",
				Query{quantile("0.5", "waterclock_transaction_duration_seconds", "{*}", "instance"),
					"{{instance}} p50"},
				Query{quantile("0.99", "waterclock_transaction_duration_seconds", "{*}", "instance"),
					"{{instance}} p99"}),
			graph("Repairs", PerSecond, "Steady growth means that brokers fail.",
				Query{rate("waterclock_transactions_resolved_total", "{*}", "job"), "outcomes found out"},
				Query{rate("waterclock_transactional_ids_retired_total", "{*}", "job"), "transactional IDs retired"},
				Query{rate("waterclock_transactional_clients_total", "{*}", "job"), "clients opened"},
				Query{rate("waterclock_hanging_transactions_ended_total", "{*}", "job"), "hanging transactions ended"},
				Query{rate("waterclock_open_transactions_ended_total", "{*}", "job"), "open transactions ended"},
				Query{rate("waterclock_markers_written_total", "{*}", "job"), "markers written"}),
			graph("Brokers", Count,
				"Brokers that say nothing, and partitions whose marker of an ended transaction may be missing.",
				Query{"max by (job) (waterclock_unresponsive_brokers{*})", "unresponsive brokers"},
				Query{"max by (job) (waterclock_missing_markers{*})", "missing markers"}),
		}},
		{"Instances", []Panel{
			graph("Processor time", Count, "Cores in use.", Query{"sum by (instance) " +
				"(rate(process_cpu_seconds_total{*}[$__rate_interval]))", "{{instance}}"}),
			graph("Memory", Bytes, "Resident.", Query{"process_resident_memory_bytes{*}", "{{instance}}"}),
			graph("Clock", Seconds, "The instance's clock minus the brokers'.",
				Query{"waterclock_clock_offset_seconds{*}", "{{instance}}"}),
			graph("Clock jumps and pauses", Count, "In the last hour.",
				Query{"sum by (instance, direction) (increase(waterclock_clock_jumps_total{*}[1h]))",
					"{{instance}} {{direction}}"},
				Query{"sum by (instance) (increase(waterclock_pauses_total{*}[1h]))", "{{instance}} paused"}),
			graph("Foreign group", Count, "1: other programs use the group.",
				Query{"waterclock_group_foreign{*}", "{{instance}}"}),
			graph("Settings that differ", Count, "Instances whose setting is not that of most of the group.",
				Query{"max by (setting) (waterclock_settings_differing{*})", "{{setting}}"}),
			graph("Rights", Count, "Rights or logins that are missing.",
				Query{"waterclock_access_problems{*}", "{{instance}}"}),
			{"Versions", "What each instance was built from.", Table, Count, []Query{{"waterclock_build_info{*}", ""}}},
		}},
	}}
}

func partitions() Dashboard {
	return Dashboard{"partitions", "Partitions and local store", true, []Row{
		{"Ownership", []Panel{
			graph("Partitions by state", Count, "All but live ones are not served.", Query{"sum by (topic, state) " +
				"(waterclock_partitions{topic})", "{{topic}} {{state}}"}),
			graph("Owned and existing", Count, "Where the lines differ some partition has no owner.",
				Query{"sum by (topic) (waterclock_partitions{topic})", "{{topic}} owned"},
				Query{"max by (topic) (waterclock_topic_partitions{topic})", "{{topic}} existing"}),
			graph("Replay", PerSecond, "Changelog offsets that replays go through.", Query{rate(
				"waterclock_replayed_offsets_total", "{*}", "instance"), "{{instance}}"}),
			graph("Copies for other owners", Count,
				"Partitions that the instance follows so that it can own them immediately.",
				Query{"sum by (instance, state) (waterclock_standby_partitions{*})", "{{instance}} {{state}}"}),
			graph("Changelogs followed", PerSecond, "Changelog offsets read for copies.",
				Query{rate("waterclock_standby_offsets_total", "{*}", "instance"), "{{instance}}"}),
			graph("Left to replay", Count, "Changelog offsets.", Query{"sum by (instance) " +
				"(waterclock_replay_remaining_offsets{topic})", "{{instance}}"}),
		}},
		{"Requests on their way", []Panel{
			graph("Lag", Seconds, "So late a live cancel may lose. A tenant with over-limit: delay lags on purpose.",
				Query{"max by (topic, partition) (waterclock_intake_lag_seconds{topic})", "{{topic}}/{{partition}}"}),
			graph("Lag in records", Count, "Requests before the log's end.", Query{"max by (topic, partition) " +
				"(waterclock_intake_lag_records{topic})", "{{topic}}/{{partition}}"}),
			graph("Held by open transactions", Seconds, "For how long a producer has kept requests from being read.",
				Query{"max by (topic, partition, producer_id, transactional_id) " +
					"(waterclock_intake_held_seconds{topic})", "{{topic}}/{{partition}} {{transactional_id}} {{producer_id}}"}),
			graph("Queue", Count, "Read or planned and not committed.", Query{"sum by (instance, topic) " +
				"(waterclock_queue_entries{topic})", "{{instance}} {{topic}}"}),
			graph("Queue in bytes", Bytes, "At its limit intake pauses; nothing is dropped.",
				Query{"sum by (instance, topic) (waterclock_queue_bytes{topic})", "{{instance}} {{topic}}"}),
			graph("Ledger", Count, "0 whenever every committed step is applied.", Query{"sum by (instance, topic) " +
				"(waterclock_ledger{topic})", "{{instance}} {{topic}}"}),
		}},
		{"Topics", []Panel{
			graph("Problems", Count, "At the last check.", Query{"max by (topic, severity) " +
				"(waterclock_topic_problems{topic})", "{{topic}} {{severity}}"}),
			graph("Checks", Count, "In the last hour, by result.", Query{"sum by (topic, result) " +
				"(increase(waterclock_topic_checks_total{topic}[1h]))", "{{topic}} {{result}}"}),
			graph("Calendars", Count, "Of the group, with ignored records of the last hour, and seconds behind.",
				Query{"max(waterclock_calendars{*})", "calendars"},
				Query{"max(increase(waterclock_calendars_ignored_total{*}[1h]))", "ignored"},
				Query{"max(waterclock_calendars_behind_seconds{*})", "seconds behind"},
				Query{"sum(waterclock_timers_without_calendar{*})", "timers that name missing ones"}),
		}},
		{"Local store: disk and memory", []Panel{
			graph("Disk", Bytes, "An instance whose disk is full ends.",
				Query{"waterclock_store_disk_bytes{*}", "{{instance}} used"},
				Query{"waterclock_store_free_bytes{*}", "{{instance}} free"},
				Query{"waterclock_store_obsolete_bytes{*}", "{{instance}} about to be removed"}),
			graph("Memory", Bytes, "Bounded by the setting memory.",
				Query{"waterclock_store_memtable_bytes{*}", "{{instance}} memtables"},
				Query{"waterclock_store_cache_bytes{*}", "{{instance}} cache"}),
			graph("Stalls", Share, "Share of the time that writers or replays waited for the disk.",
				Query{rate("waterclock_store_stalled_seconds_total", "{*}", "instance"), "{{instance}} writers"},
				Query{rate("waterclock_store_replay_waited_seconds_total", "{*}", "instance"), "{{instance}} replays"}),
			graph("Faults of the disk", Count, "In the last hour.",
				Query{"sum by (instance) (increase(waterclock_store_stalls_total{*}[1h]))", "{{instance}} stalls"},
				Query{"sum by (instance) (increase(waterclock_store_replay_waits_total{*}[1h]))",
					"{{instance}} replays that waited"},
				Query{"sum by (instance) (increase(waterclock_store_slow_disk_total{*}[1h]))",
					"{{instance}} slow operations"},
				Query{"sum by (instance) (increase(waterclock_store_background_errors_total{*}[1h]))",
					"{{instance}} errors"},
				Query{"sum by (instance) (increase(waterclock_store_damaged_tables_total{*}[1h]))",
					"{{instance}} damaged tables"},
				Query{"sum by (instance) (increase(waterclock_partitions_damaged_total{*}[1h]))",
					"{{instance}} partitions wiped"}),
		}},
		{"Local store: work", []Panel{
			graph("Written", Bytes, "Bytes a second.",
				Query{rate("waterclock_store_written_bytes_total", "{*}", "instance"), "{{instance}}"}),
			graph("Flushes, compactions, ingests", PerSecond, "",
				Query{rate("waterclock_store_flushes_total", "{*}", "instance"), "{{instance}} flushes"},
				Query{rate("waterclock_store_compactions_total", "{*}", "instance"), "{{instance}} compactions"},
				Query{rate("waterclock_store_ingests_total", "{*}", "instance"), "{{instance}} ingests"}),
			graph("Hits of cache and filters", Share, "Low under random cancels: more memory spares reads.",
				Query{hits("cache"), "{{instance}} cache"},
				Query{hits("filter"), "{{instance}} filters"}),
			graph("Compactions behind", Bytes, "Estimated.",
				Query{"waterclock_store_compaction_debt_bytes{*}", "{{instance}}"}),
			graph("Layers", Count, "Layers that wait for a compaction, and that a read passes through.",
				Query{"waterclock_store_level0_layers{*}", "{{instance}} level 0"},
				Query{"waterclock_store_read_amplification{*}", "{{instance}} read"}),
			graph("Tombstones", Count, "Deletions that are not compacted away yet.",
				Query{"waterclock_store_tombstones{*}", "{{instance}}"}),
		}},
	}}
}

// hits returns the share of reads that a cache or filter of the store answered.
func hits(part string) string {
	h := rate("waterclock_store_"+part+"_hits_total", "{*}", "instance")
	return h + " / (" + h + " + " + rate("waterclock_store_"+part+"_misses_total", "{*}", "instance") + ")"
}

func targets() Dashboard {
	return Dashboard{"targets", "Targets", true, []Row{
		{"Parked timers", []Panel{
			graph("Parked", Count, "Timers that wait for an unhealthy target, or for one that is not known yet.",
				Query{"sum by (topic) (waterclock_parked_timers{topic})", "{{topic}}"}),
			graph("By target partition", Count,
				"any: no partition is healthy; unknown: no such topic; beyond: no such partition.",
				Query{"sum by (target, partition) (waterclock_parked_timers_by_target{topic})",
					"{{target}}/{{partition}}"}),
			graph("Deferred", Count, "Due timers that wait for the rate of their target.",
				Query{"sum by (target) (waterclock_deferred_timers{*})", "{{target}}"}),
			graph("Targets that refuse the clock", Count, "Target partitions.",
				Query{"waterclock_clock_refused_targets{*}", "{{instance}}"}),
			graph("Lateness of firings", Seconds, "p99, from the due time until consumers see the firing.",
				Query{quantile("0.99", "waterclock_commit_lateness_seconds", "{topic}", "topic"), "{{topic}}"}),
		}},
		{"Firings", []Panel{
			graph("Fired", PerSecond, "", Query{rate("waterclock_outcomes_total", `{topic,outcome="fired"}`, "topic"),
				"{{topic}}"}),
			graph("Undeliverable and expired", PerSecond,
				"Firings that became dead letters, and occurrences that were later than timer-max-late.",
				Query{rate("waterclock_outcomes_total", `{topic,outcome=~"undeliverable|expired"}`, "topic, outcome"),
					"{{topic}} {{outcome}}"}),
		}},
	}}
}

func tenants() Dashboard {
	return Dashboard{"tenants", "Tenants", true, []Row{
		{"Use", []Panel{
			graph("Accepted", PerSecond, "Requests that made a pending timer.",
				Query{rate("waterclock_accepted_total", "{topic}", "topic"), "{{topic}}"}),
			graph("Pending", Count, "", Query{"sum by (topic) (waterclock_pending_timers{topic})", "{{topic}}"}),
			graph("Outcomes", PerSecond, "", Query{rate("waterclock_outcomes_total", "{topic}", "topic, outcome"),
				"{{topic}} {{outcome}}"}),
			graph("Queue", Bytes, "Shared fairly between request topics.", Query{"sum by (topic) " +
				"(waterclock_queue_bytes{topic})", "{{topic}}"}),
			graph("Lag", Seconds, "Of the partition that lags most.", Query{"max by (topic) " +
				"(waterclock_intake_lag_seconds{topic})", "{{topic}}"}),
			graph("Lateness of firings", Seconds, "p99.",
				Query{quantile("0.99", "waterclock_commit_lateness_seconds", "{topic}", "topic"), "{{topic}}"}),
		}},
		{"Faults of producers", []Panel{
			graph("Dead letters", PerSecond, "By reason; docs/REFERENCE.md says what they mean.",
				Query{rate("waterclock_dead_letters_total", "{topic}", "topic, reason"), "{{topic}} {{reason}}"}),
			graph("Requests on the wrong partition", PerSecond, "A producer uses another partitioner than murmur2.",
				Query{rate("waterclock_misplaced_requests_total", "{topic}", "topic"), "{{topic}}"}),
			graph("Timers on the wrong partition", Count, "Cancels miss them.", Query{"sum by (topic) " +
				"(waterclock_misplaced_timers{topic})", "{{topic}}"}),
			graph("Lost or cut requests", Count, "In the last hour: deleted by retention before they were read, cut "+
				"with their log, and warnings that retention is near.",
				Query{"sum by (topic) (increase(waterclock_requests_lost_total{topic}[1h]))", "{{topic}} lost"},
				Query{"sum by (topic) (increase(waterclock_requests_cut_total{topic}[1h]))", "{{topic}} cut"},
				Query{"sum by (topic) (increase(waterclock_retention_alerts_total{topic}[1h]))",
					"{{topic}} retention near"}),
		}},
	}}
}

func api() Dashboard {
	return Dashboard{"api", "HTTP API", false, []Row{
		{"Calls", []Panel{
			graph("Calls", PerSecond, "By operation.",
				Query{rate("waterclock_api_calls_total", "{*}", "call"), "{{call}}"}),
			graph("By status", PerSecond, "", Query{rate("waterclock_api_calls_total", "{*}", "status"), "{{status}}"}),
			graph("Share of errors", Share, "Answers of 500 and above.",
				Query{`sum by (instance) (rate(waterclock_api_calls_total{*,status=~"5.."}[$__rate_interval])) / ` +
					rate("waterclock_api_calls_total", "{*}", "instance"), "{{instance}}"}),
			graph("Refused", PerSecond, "Before the operation began, by reason; docs/ACCESS.md says what they mean.",
				Query{rate("waterclock_api_refused_total", "{*}", "reason"), "{{reason}}"}),
			graph("Duration, p50", Seconds, "", Query{quantile("0.5", "waterclock_api_call_seconds", "{*}", "call"),
				"{{call}}"}),
			graph("Duration, p99", Seconds, "", Query{quantile("0.99", "waterclock_api_call_seconds", "{*}", "call"),
				"{{call}}"}),
		}},
	}}
}
