// Package oracles holds our cron expressions and calendar periods against other implementations: Quartz, cronsim and
// croniter, and java.time and dateutil. They come from their registries and need Java 17, Maven, and Python 3 with
// venv:
//
//	make oracles                              2,000 expressions, 30 dates in each of 30 zones: half an hour of a core
//	make oracles EXPRESSIONS=200 SEED=17      a tenth of them; the draw of a seed that was printed
//	make oracles EXPRESSIONS=60 STARTS=30     180 dates in each zone
//
// Each expression is asked for its next six occurrences after STARTS random instants in each of 30 zones, every second
// one shortly before a change of the clock. translate_test.go writes it for each of them. rules_test.go is the table of
// differences: what decides each, and how it is recognised. A difference without a rule fails the test. make slow draws
// fewer. The last run, in November 2026: SEED=20261129, 783,000 cases of cron and 300,000 of periods, none.
package oracles
