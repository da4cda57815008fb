package simulation

import (
	"slices"
)

// bug is a change of the product that must not go unseen. No line of it is in the product: the compiler gets
// other files in place of its own (go build -overlay).
type bug struct {
	name   string
	breaks string // a rule of package history; or the line of an issue whose mend is taken out
	by     string // package and test that must fail; "": TestSimulation
	plant  []change
}

func bugs() []bug { return slices.Concat(breaks(), mends()) }

// breaks are bugs each of which breaks a rule.
func breaks() []bug {
	return []bug{
		{"an acquisition begins to read one request too late", "loss", "",
			[]change{{"internal/partition", "Partition.acquire", "call newServed, arg 2", "$ + 1"}}},
		{"of a step's emissions three are sent", "loss", "",
			[]change{{"emitter", "transaction.send", "call Produce, ..", "$[:min(3, len($))]"}}},
		{"a step whose end is not known counts as aborted", "duplicate", "",
			[]change{{"emitter", "transaction.resolve", "if EndingCommit", never}}},
		{"a step whose end is read back as committed counts as aborted", "duplicate", "",
			[]change{{"emitter", "readBack", "EndingCommit", "$x.EndingAbort"}}},
		{"timers fire that fall due within 50 ms", "early", "",
			[]change{
				{"internal/partition/planner", "known.popDue", "call Pop, arg 1", "$ + 50"},
				{"internal/partition", "sealedStep.route", "> FiresAt", "$x > $y + 50"},
			}},
		{"a step that is sealed again does not look at the clock", "early", "",
			[]change{{"internal/partition", "sealedStep.route", "case FiresAt", never}}},
		{"a firing that is too late when it is planned is emitted", "late", "",
			[]change{
				{"internal/partition/planner", "recurrences.occur", "if IsTooLate", never},
				{"internal/partition", "sealedStep.route", "case IsTooLate", never},
			}},
		{"a step that is sealed again emits firings that are too late by then", "late", "",
			[]change{{"internal/partition", "sealedStep.route", "case IsTooLate", never}}},
		{"an emission lacks its first header", "altered", "",
			[]change{{"internal/partition", "emissions.record", "for Headers", "$[min(1, len($)):]"}}},
		{"the next occurrence is counted from when the last one fired", "altered", "",
			[]change{
				{"internal/partition/planner", "recurrences.occur", "call After", `$
					if $x != nil {
						next := *$x
						next.Due += $2 - $xx.Emit.Due
						$x = &next
					}`},
			}},
		{"a request behind a firing that is rolled back is not decided again", "order", "",
			[]change{{"internal/partition/planner", "Planner.rollBack", "call decide", drop}}},
		{"the catch-up barrier is open from the start", "order", "",
			[]change{{"internal/partition/planner", "Planner.Fire", "for open, open", drop}}},
		{"a request for a timer that is just firing is lost", "kept", "",
			[]change{
				{"internal/partition/planner", "Planner.decide", "call decide", `$
					if last := $3.last; last != nil && last.firing && $3.timer == nil {
						$1.After, $1.Value, $1.Outcome = nil, nil, timer.NotFound
					}`},
			}},
		{"a move loses the cancel behind it", "order", "",
			[]change{
				{"internal/partition/planner", "Planner.decide", "call decide", `$
					if last := $3.last; last != nil && last.Outcome == timer.Moved && $1.Outcome == timer.Cancelled {
						$1.After = last.After
					}`},
			}},
		{"the changelog keeps the timer that was replaced", "kept", "",
			[]change{{"internal/partition/planner", "Segment.Changes", "!= Before",
				"$ && ($x.IsAbsent() || $y.IsAbsent())"}}},
		{"the event of a replacement does not name what was replaced", "told", "",
			[]change{{"internal/kafka/wire", "EventOf", "Previous", drop}}},
		{"the event of a firing says when it was due, and not when it fired", "told", "",
			[]change{
				{"internal/kafka/wire", "EventOf", "case Fired, assign Occurred", "$; $r1.At = $1.Emit.FiresAt()"},
			}},
		{"a rate that a rebalance doubles", "rate", "",
			[]change{
				{"internal/rates", "Holding.End", "call delete", drop},
				{"internal/rates", "Limiter.count", "call Err", "error(nil)"},
			}},
		{"each instance has the whole rate", "rate", "",
			[]change{{"internal/rates", "Limiter.count", "/ max", "min(1, $x)"}}},
		{"deferred timers come back in no order", "rate", "",
			[]change{
				{"internal/partition", "parking.undeferSome", "call UnparkIf, arg 5",
					"func(t *timer.Timer) bool { return $(t) && t.Offset%3 != $0.part.clock.millis()/8000%3 }"},
			}},
		{"a deferred timer that expires silently", "fold", "",
			[]change{
				{"internal/partition", "Partition.event", "assign EventOf", `$
					if $1.Late != nil && $1.Firing() && $0.paced(&$1.Late.Target, $1.Late.Due) {
						return $r1, false
					}`},
			}},
		{"a rejected request has no dead letter", "poison", "",
			[]change{{"internal/partition", "sealedStep.build", "call deadLetters", drop}}},
		{"a rejected request has two dead letters", "poison", "",
			[]change{{"internal/partition", "sealedStep.build", "call deadLetters", "$; $"}}},
		{"the bound passes what one sub-partition has not planned", "position", "",
			[]change{{"internal/partition/tracker", "Tracker.Bound", "first", "$x.behind"}}},
		{"a step's position is one too high", "position", "",
			[]change{{"internal/partition", "sealedStep.build", "call Checkpoint, arg 1", "$ + 1"}}},
		{"the check between groups lets every step pass", "writer", "",
			[]change{{"internal/ownership", "Steps.check", "call check", "error(nil)"}}},
		{"a step goes on although the group does not know the member, and the check lets it pass", "writer", "",
			[]change{
				{"emitter", "txnClient.commitOffsets", "assign errRefused", "return nil"},
				{"internal/ownership", "Steps.check", "call check", "error(nil)"},
			}},
		{"a step that is aborted is applied", "fold", "",
			[]change{{"internal/partition", "sealedStep.done", "case Aborted, giveBack", "$x.commit"}}},
		{"a step that is lost is applied", "fold", "",
			[]change{{"internal/partition", "sealedStep.done", "case Lost, giveBack", "$x.commit"}}},
		{"applying a firing forgets that the store has the timer", "fold", "",
			[]change{{"internal/partition/planner", "dirty.apply", "call add", "$; if $3 == nil { $0.drop($1) }"}}},
		{"a checkpoint of the store leaves deletions out", "fold", "",
			[]change{{"internal/partition/planner", "Planner.BeginFlush", "if Tombstone, assign ChangeOf", drop}}},
		{"a view is reused whatever the log shows", "fold", "",
			[]change{{"internal/ownership", "evidence.refuted", "body", `return ""; $`}}},
		{"the ledger does not count cancels", "ledger", "",
			[]change{{"internal/partition", "ledger.add", "Cancelled", drop}}},
		{"what is pending is not counted less by what ends", "ledger", "",
			[]change{{"internal/partition/planner", "Planner.Commit", "adds", "max(0, $)"}}},
		{"an answer is given without asking the group", "stale", "",
			[]change{{"internal/partition/questions", "answers.confirm", "call Certain", "$1.Err()"}}},
		{"an answer says what is planned, and not what is committed", "stale", "",
			[]change{
				{"internal/partition/planner", "Planner.Committed", "after change", "$xx.timer"},
				{"internal/partition/planner", "Planner.Committed", "call stale", "true"},
			}},
		{"an answer leaves out what the store lacks", "stale", "",
			[]change{{"internal/partition/planner", "Planner.Committed", "call stale", "false"}}},
		{"the offset that a step commits is that of the step before", "lag", "",
			[]change{{"internal/partition", "sealedStep.build", "call Offset, arg 1", "$0.l.subs.Position()"}}},
		{"offsets do not pass markers at the log's end", "lag", "",
			[]change{
				{"internal/partition", "lane.mayPass", "return passPause", never},
				{"internal/partition", "lane.couldPass", "return Bound", never},
			}},
		{"a firing that is rolled back does not wait to fire again", "liveness", "",
			[]change{{"internal/partition/planner", "Planner.rollBack", "assign waiting", drop}}},
		{"timers that were evicted from memory are not loaded again", "liveness", "",
			[]change{{"internal/partition/planner", "known.evictFrom", "if horizon", never}}},
		{"nobody waits for targets that were unhealthy before an acquisition", "liveness", "",
			[]change{{"internal/partition", "parking.open", "call Wait", drop}}},

		{"a calendar is read too late", "calendars", "./test/contract TestAnAnsweredPutHoldsForTheNextRequest",
			[]change{{"internal/partition", "subPartition.awaitCalendars", "body", "return nil; $"}}},
		{"an occurrence that a calendar moves earlier is missed", "calendars",
			"./test/contract TestPendingTimersFollowACalendar",
			[]change{{"internal/partition", "keeper.followRules", "body", "return nil; $"}}},
		{"intake is never held back", "bounds", "./internal/partition TestIntakePausesAtTheQueuesLimit",
			[]change{{"internal/partition", "backlog.full", "return tell", never}}},
		{"nothing is evicted from memory", "bounds", "./internal/partition TestAWheelForgetsBeyondItsShare",
			[]change{{"internal/partition/planner", "known.evict", "for held", never}}},
		{"what the store lacks has no limit", "bounds",
			"./internal/partition TestNothingIsSealedWhileMemoryForDirtyTimersIsFull",
			[]change{{"internal/partition", "lane.Seal", "if mustWait", never}}},
		{"who comes first has the whole step", "share", "./emitter TestStepsAreSharedBetweenTopics",
			[]change{{"emitter", "fairShares.offer", "if among", never}}},
		{"each partition of a topic has its topic's part of the memory", "share",
			"./internal/kit/budget TestBacklogsOfTwoTopicsComeToHaveAsMuch",
			[]change{{"internal/kit/budget", "Account.limit", "/ max", "$x"}}},
		{"firings take whole steps while requests wait", "share", "./internal/partition TestFlowKeepsAFloorForRequests",
			[]change{{"internal/partition", "flow.share", "body", "return $1; $"}}},
	}
}
