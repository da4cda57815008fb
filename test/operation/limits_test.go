package operation

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock"
	"github.com/waterclock/waterclock/intake"
)

// heldBy names, by directory and constant, the tests at each limit and one beyond. A test in another
// directory is written DIRECTORY.TEST. The constants' comments say what they limit; those that
// users meet are in docs/LIMITS.md as well.
var heldBy = map[string]map[string]string{
	".": {
		"MaxIDBytes":    "test/operation.TestLimitsOfRequests",
		"MaxRemember":   "intake.TestValidateRemembers",
		"MaxTokenBytes": "intake.TestValidateRemembers",
	},
	"internal/kafka/topics": {
		"MaxRequestName": "TestNames",
		"maxAhead":       "TestVerifyTimestampsAhead",
	},
	"internal/timer": {"MaxDetailBytes": "TestCutDetail internal/kafka/wire.TestDeadDetailIsBounded"},
	"emitter": {
		"MaxStepEntries":    "TestAStepsLimits",
		"MaxStepBytes":      "TestAStepsLimits",
		"sharedStepEntries": "TestStepsAreShortWhileOthersAreServed",
		"MaxStepPartitions": "TestAStepsLimits",
		"manyTopics":        "TestClientsKeepAFewTopics TestClientsForgetIdleTopics",
	},
	"emitter/targets": {
		"maxExamined":  "internal/partition.TestUnknownTargetsWaitInTurn",
		"maxNewcomers": "TestUnknownTopicsAreBounded",
		"maxProbes":    "TestProbesAtATime",
	},
	"intake": {
		"DefaultHorizon":     "test/operation.TestLimitsOfRequests",
		"DefaultHeaders":     "test/operation.TestLimitsOfRequests",
		"DefaultHeaderBytes": "test/operation.TestLimitsOfRequests",
		"DefaultInterval":    "TestValidateAcceptsRecurrences TestValidateRefusesRecurrences",
		"RecordBytes":        "TestValidateRecordBytes",
		"burst":              "TestMeter TestMeterBounds",
	},
	"internal/kafka/partlog": {
		"MaxUnpacked": "intake.TestReaderPassesABatchThatIsTooLarge",
		"MaxHeaders":  "intake.TestARecordOfVeryManyHeadersIsRejected",
	},
	"internal/api": {
		"maxPostBytes":   "TestAtMost",
		"maxTimers":      "TestABodyOfManyElements",
		"maxFaults":      "TestABodyOfManyElements",
		"maxHeaders":     "TestABodyOfManyElements",
		"maxRunning":     "TestAtMost",
		"maxStreams":     "TestAtMost",
		"maxBehind":      "TestStreamContinuesAtItsPosition",
		"logReads":       "TestLogsAreReadInTurns",
		"pageBytes":      "TestPagesAreBounded TestPagesOfLogsAreBounded TestPagesOfHistoryAreBounded",
		"maxResultBytes": "TestPagesAreBounded",
		"runningEach":    "TestAtMost",
		"rateSteps":      "TestRateOfAJob",
		"logReadsEach":   "TestLogsAreReadInTurns",
	},
	"internal/api/access": {
		"memoryLeast":      "TestBodies TestPoolHasLimits",
		"bodyWait":         "TestPoolIsShared",
		"failuresAtOnce":   "TestManyWrongPasswords TestManyWrongPasswordsAtOnce",
		"maxTargetBytes":   "TestStrangeRequests",
		"maxHeaderEntries": "TestStrangeRequests",
		"maxHeaderBytes":   "TestHeaderBytes",
		"maxConnections":   "TestConnectionsOfAnAddress",
		"maxFromAddress":   "TestConnectionsOfAnAddress",
		"maxNonces":        "TestManyNonces",
	},
	"internal/api/route": {
		"MaxBody": "TestTooLargeToSend TestAskedByOthers",
	},
	"internal/audit": {
		"maxFacts":       "TestTooManyFacts TestMemoryOfJudging",
		"maxJudged":      "TestMemoryOfJudging",
		"maxTargets":     "TestTargetsOfAnAuditAreBounded",
		"notedAbsent":    "TestManyAbsentTargets",
		"keptViolations": "TestViolationsAreBounded",
	},
	"internal/kit/budget": {
		"reserved": "TestAloneItHasAll",
		"Least":    "TestBudget",
	},
	"internal/timer/calendar": {
		"MaxExpressionBytes": "TestParse TestParseRefuses",
		"maxSchedules":       "TestCache",
		"maxExpressions":     "TestScheduleCacheIsBoundedInBytes",
	},
	"internal/node/config": {
		"MaxDelay":         "TestDelayThatIsNotValid",
		"MaxSubPartitions": "TestProblems",
	},
	"internal/ownership/membership": {
		"maxViewBytes": "TestUserDataIsBounded",
		"maxCopyBytes": "TestUserDataOfManyMembersIsBounded",
		"groupBytes":   "TestUserDataOfManyMembersIsBounded",
	},
	"internal/kit/memory": {
		"fetchMost": "TestDivide",
		"Wheel":     "internal/partition.TestAWheelForgetsBeyondItsShare",
		"Store":     "statestore.TestCacheStaysInItsRoom",
		"Requests": "internal/partition.TestIntakePausesAtTheQueuesBytes " +
			"internal/partition.TestFiringsWaitAtTheirLimit",
		"Total": "test/load.TestMemoryIsKept test/load.TestPeakMemoryOfABurst " +
			"test/load.TestPeakMemoryWhileABrokerIsPaused",
		"Replays": "internal/node.TestReplaysThatStandStillHoldNobodyUp internal/node.TestReplaySlots",
		"Replay":  "internal/kafka/replay.TestReplayFlushes",
		"Calls": "internal/api/access.TestBodies internal/api/access.TestSlowBodiesDelayNobody " +
			"internal/api/access.TestAnswersThatAreNotTaken",
		"Questions": "internal/partition/questions.TestQuestionsHoldNoMoreThanTheyMay",
	},
	"internal/partition/memtable": {
		"MaxBytes": "TestLargeTimersAreNotRecords",
	},
	"internal/ownership": {
		"DrainTimeout": "TestDrainGivesUpOnAStuckStep",
	},
	"internal/partition": {
		"queueEntry":     "TestIntakePausesAtTheQueuesLimit TestFiringsWaitAtTheirLimit",
		"leastLoad":      "TestALoadIsBounded",
		"maxBatch":       "TestRequestsJoinUpToMaxBatch",
		"maxBatchBytes":  "TestRequestsJoinUpToMaxBatchBytes",
		"maxReadAhead":   "TestFlowIsBounded",
		"leastReadAhead": "TestFlowIsBounded",
		"maxArrivals":    "TestArrivals",
		"heldPatience":   "test/interleavings.TestGateBehindAForeignTransaction",
		"eventBytes":     "TestEventsCountInAStep",
		"maxUnapplied":   "TestSealsUpToMaxUnapplied",
		"Dirty":          "TestACheckpointBeginsAtItsBytes TestNothingIsAppliedWhileMemoryForDirtyTimersIsFull",
		"loadRows":       "TestALoadIsBounded",
		"loadBytes":      "TestALoadIsBounded",
		"warnBurst":      "TestWarnings",
	},
	"internal/partition/questions": {
		"maxDecisions":     "TestDecisionsThatAreNotKnown",
		"maxDecisionBytes": "TestDecisionsHoldNoMoreThanTheyMay",
		"maxUnflushed":     "TestQuestionsHoldNoMoreThanTheyMay",
	},
	"internal/partition/planner": {
		"maxFirings":     "TestFiringsAreTakenInChunks",
		"maxFiringBytes": "TestFiringsAreTakenInChunks",
		"maxSpare":       "TestUnusedItemsAreFreed",
	},
	"internal/node": {
		"maxParkedShown": "TestParkedTargetsShown",
	},
}

// Every constant in heldBy is in the code and has its tests, and docs/LIMITS.md names no other.
func TestEveryLimitIsInTheCode(t *testing.T) {
	listed := make(map[string]bool)
	for directory, limits := range heldBy {
		code, tests := goFiles(t, directory)
		for name, held := range limits {
			listed[name] = true
			if !regexp.MustCompile(`(?m)^\s*(const )?` + name + `\b`).MatchString(code) {
				t.Errorf("%s has no %s", directory, name)
			}
			for test := range strings.FieldsSeq(held) {
				in := tests
				if elsewhere, name, ok := strings.Cut(test, "."); ok {
					test = name
					_, in = goFiles(t, elsewhere)
				}
				if !strings.Contains(in, "\nfunc "+test+"(") {
					t.Errorf("%s of %s has no %s", name, directory, test)
				}
			}
			if held == "" {
				t.Errorf("no test is named for %s of %s", name, directory)
			}
		}
	}
	b, err := os.ReadFile(filepath.Join(root, "docs", "LIMITS.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\|.*\\| `([A-Za-z]+)` \\|$").FindAllStringSubmatch(string(b), -1)
	if len(rows) < 40 {
		t.Fatalf("found %d rows only", len(rows))
	}
	for _, row := range rows {
		if !listed[row[1]] {
			t.Errorf("docs/LIMITS.md names %s, which no test is named for", row[1])
		}
	}
}

// goFiles returns the text of a directory's code, and that of its tests.
func goFiles(t *testing.T, directory string) (code, tests string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, directory, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, "_test.go") {
			tests += string(b)
		} else {
			code += string(b)
		}
	}
	return code, tests
}

// The limits of a request where nothing is configured: at the limit, one beyond.
func TestLimitsOfRequests(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	horizon := now.Add(intake.DefaultHorizon).UnixMilli()
	request := func(id int, due int64, headers, headerBytes int) *kgo.Record {
		r := &kgo.Record{Topic: "requests", Timestamp: now, Key: bytes.Repeat([]byte("k"), id),
			Headers: []kgo.RecordHeader{
				{Key: "timer-at", Value: []byte(strconv.FormatInt(due, 10))},
				{Key: "timer-target-topic", Value: []byte("out")},
			}}
		for len(r.Headers) < headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: "h"})
		}
		size := 0
		for _, h := range r.Headers {
			size += len(h.Key) + len(h.Value)
		}
		if headerBytes > size {
			r.Headers[len(r.Headers)-1].Value = []byte(strings.Repeat("v", headerBytes-size))
		}
		return r
	}
	soon := now.Add(time.Second).UnixMilli()
	for _, c := range []struct {
		name string
		r    *kgo.Record
		want waterclock.Reason
	}{
		{"ID of 1", request(1, soon, 2, 0), ""},
		{"ID of 0", request(0, soon, 2, 0), waterclock.ReasonBadKey},
		{"ID of 512", request(512, soon, 2, 0), ""},
		{"ID of 513", request(513, soon, 2, 0), waterclock.ReasonBadKey},
		{"due at the horizon", request(1, horizon, 2, 0), ""},
		{"due 1 ms beyond", request(1, horizon+1, 2, 0), waterclock.ReasonBeyondHorizon},
		{"128 headers", request(1, soon, 128, 0), ""},
		{"129 headers", request(1, soon, 129, 0), waterclock.ReasonTooManyHeaders},
		{"64 KiB of headers", request(1, soon, 3, 64<<10), ""},
		{"one byte more", request(1, soon, 3, 64<<10+1), waterclock.ReasonHeadersTooLarge},
	} {
		rules := &intake.Rules{Topic: "requests", Partitions: 1, Allow: func(string) bool { return true },
			Limits: intake.DefaultLimits()}
		_, _, refused := rules.Validate(c.r, now.UnixMilli())
		got := waterclock.Reason("")
		if refused != nil {
			got = refused.Reason
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q (%+v)", c.name, got, c.want, refused)
		}
	}
}
