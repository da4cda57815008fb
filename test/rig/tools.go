package rig

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kit/localkafka"
)

// Java returns a Java command with Kafka's own clients on its class path. If there is no Java, or no jars, the
// test is skipped like one that needs a broker.
func Java(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	return kafkatest.Tools(t).Java(nil, args...)
}

// Tool returns one of Kafka's command-line tools, named by the class that its script in bin/ runs. The tools have
// their own jar, which Maven downloads (1 MB) at the first use. It skips like Java.
func Tool(t testing.TB, class string, args ...string) *exec.Cmd {
	t.Helper()
	tools, args := kafkatest.Tools(t), append([]string{class}, args...)
	if found, _ := filepath.Glob(filepath.Join(tools.Libs, "kafka-tools-[0-9]*.jar")); len(found) > 0 {
		return tools.Java(nil, args...)
	}
	clients, err := filepath.Glob(filepath.Join(tools.Libs, "kafka-clients-*.jar"))
	if err != nil || len(clients) != 1 {
		t.Fatalf("found %d jars of Kafka's clients in %s, want 1", len(clients), tools.Libs)
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(clients[0]), "kafka-clients-"), ".jar")
	jar, err := localkafka.Jar(t.Context(), "org.apache.kafka", "kafka-tools", version)
	if err != nil {
		t.Fatal(err)
	}
	return tools.Java([]string{jar}, args...)
}
