package kafkatest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// envViolations names a file. A test that passes on its second run may have been disturbed by a busy machine. But a
// lost, repeated or early record is never caused by that.
const envViolations = "WATERCLOCK_VIOLATIONS"

// Inexact fails t with Errorf, for something that the service promises never to do: a record was lost, repeated, early
// or changed. CI repeats a failed test once, but not after such a verdict, which it learns from one line in the file of
// WATERCLOCK_VIOLATIONS. A record that did not come in time is not a verdict: machines are busy.
func Inexact(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Errorf(format, args...)
	path := os.Getenv(envViolations)
	if path == "" {
		return
	}
	said := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
	if err := appendLine(path, testPackage()+"/"+t.Name()+": "+said); err != nil {
		t.Errorf("kafkatest: note the violation: %v", err)
	}
}
