// Package runbook runs the commands of docs/RUNBOOK.md, as they stand there, after it has caused what they are for: in
// a shell, with the real binary and Kafka's own tools, against a real broker. What became of the timers it asks a plain
// Kafka client.
package runbook

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

const (
	root = "../.."
	// patience is far more than anything here takes.
	patience = time.Minute
	// partitions of the request topics.
	partitions = 4
)
