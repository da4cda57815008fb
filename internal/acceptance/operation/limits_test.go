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

// heldBy names, for each limit of docs/LIMITS.md, the tests at the limit and one
// beyond, as directory and test.
var heldBy = map[string]string{
	"MaxIDBytes":         "internal/acceptance/operation TestLimitsOfRequests",
	"maxViewBytes":       "internal/membership TestUserDataIsBounded",
	"MaxRemember":        "intake TestJudgeRemembers",
	"MaxTokenBytes":      "intake TestJudgeRemembers",
	"DefaultHorizon":     "internal/acceptance/operation TestLimitsOfRequests",
	"DefaultHeaders":     "internal/acceptance/operation TestLimitsOfRequests",
	"DefaultHeaderBytes": "internal/acceptance/operation TestLimitsOfRequests",
	"DefaultInterval":    "intake TestJudgeAcceptsRecurrences TestJudgeRefusesRecurrences",
	"MaxExpressionBytes": "internal/calendar TestParse TestParseRefuses",
	"maxSchedules":       "internal/calendar TestCache",
	"RecordBytes":        "intake TestJudgeRecordBytes",
	"burst":              "intake TestMeter TestMeterBounds",
	"MaxRequestName":     "internal/topics TestNames",
	"MaxDelay":           "internal/config TestDelayThatIsNotValid",
	"maxAhead":           "internal/topics TestVerifyTimestampsAhead",
	"maxDetailBytes":     "internal/wire TestDeadDetailIsBounded",
	"Wheel":              "internal/partition TestAWheelForgetsBeyondItsShare",
	"Store":              "statestore TestCacheStaysInItsRoom",
	"Requests":           "internal/partition TestIntakePausesAtTheQueuesBytes TestFiringsWaitAtTheirLimit",
	"Total":              "internal/acceptance/load TestMemoryIsKept TestPeakMemoryOfABurst TestPeakMemoryWhileABrokerIsPaused",
	"Replays":            "internal/service TestReplaysThatStandStillHoldNobodyUp TestReplaySlots",
	"Replay":             "internal/replay TestReplayFlushes",
	"Calls":              "internal/api/access TestBodies TestSlowBodiesHoldUpNobody TestAnswersThatAreNotTaken",
	"queueEntry":         "internal/partition TestIntakePausesAtTheQueuesLimit TestFiringsWaitAtTheirLimit",
	"apart":              "internal/budget TestAloneItHasAll",
	"Least":              "internal/budget TestBudget",
	"leastLoad":          "internal/partition TestALoadIsBounded",
	"fetchMaxBytes":      "intake TestAFetchIsBounded",
	"fetchMaxPartition":  "intake TestAFetchIsBounded",
	"maxUnpacked":        "intake TestReaderUnpacksLittleAtOnce",
	"maxUnpackedBatch":   "intake TestReaderPassesABatchThatIsTooLarge",
	"maxBatch":           "internal/partition TestRequestsJoinUpToMaxBatch",
	"maxBatchBytes":      "internal/partition TestRequestsJoinUpToMaxBatchBytes",
	"maxReadAhead":       "internal/partition TestFlowIsBounded",
	"leastReadAhead":     "internal/partition TestFlowIsBounded",
	"maxArrivals":        "internal/partition TestArrivals",
	"gateBytes":          "internal/partition TestGateAsksLittleWhileIntakeIsBehind",
	"heldPatience":       "internal/acceptance/interleavings TestGateBehindAForeignTransaction",
	"maxFirings":         "internal/planner TestFiringsAreTakenInChunks",
	"maxFiringBytes":     "internal/planner TestFiringsAreTakenInChunks",
	"MaxStepEntries":     "emitter TestAStepsLimits",
	"MaxStepBytes":       "emitter TestAStepsLimits",
	"sharedStepEntries":  "emitter TestStepsAreShortWhileOthersAreServed",
	"eventBytes":         "internal/partition TestEventsCountInAStep",
	"MaxStepPartitions":  "emitter TestAStepsLimits",
	"maxUnfolded":        "internal/partition TestSealsUpToMaxUnfolded",
	"MaxSubPartitions":   "internal/config TestProblems",
	"Delta":              "internal/partition TestACheckpointBeginsAtItsBytes TestNothingIsFoldedBehindAFullDelta",
	"loadRows":           "internal/partition TestALoadIsBounded",
	"loadBytes":          "internal/partition TestALoadIsBounded",
	"DrainTimeout":       "internal/ownership TestDrainGivesUpOnAStuckStep",
	"warnBurst":          "internal/partition TestWarnings",
	"maxParkedShown":     "internal/service TestParkedTargetsShown",
	"maxExamined":        "internal/partition TestUnknownTargetsWaitInTurn",
	"maxNewcomers":       "emitter TestUnknownTopicsAreBounded",
	"MaxBytes":           "internal/packed TestLargeTimersAreNotPacked",
	"maxSpare":           "internal/planner TestItemsToBeUsedAgainAreLetGo",
	"maxProbes":          "emitter TestProbesAtATime",
	"maxPostBytes":       "internal/api TestAtMost",
	"maxTimers":          "internal/api TestABodyOfManyElements",
	"maxFaults":          "internal/api TestABodyOfManyElements",
	"maxHeaders":         "internal/api TestABodyOfManyElements",
	"maxRunning":         "internal/api TestAtMost",
	"maxStreams":         "internal/api TestAtMost",
	"maxBehind":          "internal/api TestStreamGoesOnWhereItWas",
	"logReads":           "internal/api TestLogsAreReadInTurns",
	"memoryLeast":        "internal/api/access TestBodies TestPoolHasLimits",
	"bodyWait":           "internal/api/access TestPoolIsShared",
	"failuresAtOnce":     "internal/api/access TestManyWrongPasswords TestManyWrongPasswordsAtOnce",
	"pageBytes":          "internal/api TestPagesAreBounded TestPagesOfLogsAreBounded TestPagesOfHistoryAreBounded",
	"maxResultBytes":     "internal/api TestPagesAreBounded",
	"runningEach":        "internal/api TestAtMost",
	"rateSteps":          "internal/api TestRateOfAJob",
	"logReadsEach":       "internal/api TestLogsAreReadInTurns",
	"maxTargetBytes":     "internal/api/access TestStrangeRequests",
	"maxHeaderEntries":   "internal/api/access TestStrangeRequests",
	"maxHeaderBytes":     "internal/api/access TestHeaderBytes",
	"maxConnections":     "internal/api/access TestConnectionsOfAnAddress",
	"maxFromAddress":     "internal/api/access TestConnectionsOfAnAddress",
	"MaxBody":            "internal/api/route TestTooLargeToSend TestAskedByOthers",
	"maxNonces":          "internal/api/access TestManyNonces",
	"maxDecisions":       "internal/partition TestDecisionsThatAreNotKnown",
	"Overlay":            "internal/partition TestAnOverlayThatIsTooLargeIsStored",
	"overlayKept":        "internal/partition TestTheOverlayEnds",
}

// docs/LIMITS.md names constants that are where it says, and each has its tests.
func TestEveryLimitIsInTheCode(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "docs", "LIMITS.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\|.*\\| `([A-Za-z]+)` \\| ([a-z/_.]+\\.go) \\|").FindAllStringSubmatch(string(b), -1)
	if len(rows) < 20 {
		t.Fatalf("found %d rows only", len(rows))
	}
	if len(rows) != len(heldBy) {
		t.Errorf("%d limits, tests are named for %d", len(rows), len(heldBy))
	}
	for _, row := range rows {
		text, err := os.ReadFile(filepath.Join(root, row[2]))
		if err != nil {
			t.Error(err)
			continue
		}
		if !regexp.MustCompile(`(?m)^\s*(const )?` + row[1] + `\b`).Match(text) {
			t.Errorf("%s has no %s", row[2], row[1])
		}
		names := strings.Fields(heldBy[row[1]])
		if len(names) < 2 {
			t.Errorf("no test is named for %s", row[1])
			continue
		}
		for _, name := range names[1:] {
			if !strings.Contains(testsOf(t, names[0]), "\nfunc "+name+"(") {
				t.Errorf("%s has no %s", names[0], name)
			}
		}
	}
}

// testsOf is the text of a directory's tests.
func testsOf(t *testing.T, directory string) string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, directory, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
	}
	return text.String()
}

// The limits of a request where nothing is configured: at the limit, one beyond.
func TestLimitsOfRequests(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	horizon := now.Add(intake.DefaultHorizon).UnixMilli()
	request := func(id int, due int64, headers, headerBytes int) *kgo.Record {
		r := &kgo.Record{Topic: "requests", Timestamp: now, Key: bytes.Repeat([]byte("k"), id), Headers: []kgo.RecordHeader{
			{Key: "timer-at", Value: []byte(strconv.FormatInt(due, 10))}, {Key: "timer-target-topic", Value: []byte("out")},
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
		rules := &intake.Rules{Topic: "requests", Partitions: 1, Allow: func(string) bool { return true }, Limits: intake.DefaultLimits()}
		_, _, refused := rules.Judge(c.r, now.UnixMilli())
		got := waterclock.Reason("")
		if refused != nil {
			got = refused.Reason
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q (%+v)", c.name, got, c.want, refused)
		}
	}
}
