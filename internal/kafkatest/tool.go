package kafkatest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// toolDownload bounds the download of a jar.
const toolDownload = 5 * time.Minute

// toolMu has one test at a time look for the jar; other processes wait for its file lock.
var toolMu sync.Mutex

// Tool is one of Kafka's command-line tools, named by the class that its script in bin/ runs. The tools have a jar of
// their own, which Maven downloads (1 MB) into the cache when it is wanted first. Skips like Java.
func Tool(t testing.TB, class string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := Java(t, append([]string{class}, args...)...)
	libs := filepath.Dir(cmd.Args[2]) // -cp libs/*
	if found, _ := filepath.Glob(filepath.Join(libs, "kafka-tools-[0-9]*.jar")); len(found) > 0 {
		return cmd
	}
	clients, err := filepath.Glob(filepath.Join(libs, "kafka-clients-*.jar"))
	if err != nil || len(clients) != 1 {
		t.Fatalf("%d jars of Kafka's clients in %s", len(clients), libs)
	}
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(clients[0]), "kafka-clients-"), ".jar")
	cmd.Args[2] += string(filepath.ListSeparator) + toolJar(t, version)
	return cmd
}

// toolJar returns the path of the tools' jar of a version.
func toolJar(t testing.TB, version string) string {
	t.Helper()
	toolMu.Lock()
	defer toolMu.Unlock()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "waterclock", "kafka-tools-"+version)
	jar := filepath.Join(dir, "kafka-tools-"+version+".jar")
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	unlock, err := lockedfile.MutexAt(dir + ".lock").Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := os.Stat(jar); err == nil {
		return jar
	}
	tmp := dir + ".part" // what an earlier attempt left there is of no use
	if err := errors.Join(os.RemoveAll(tmp), os.Mkdir(tmp, 0o755)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), toolDownload)
	defer cancel()
	mvn := exec.CommandContext(ctx, "mvn", "-B", "-q", "dependency:copy", "-Dartifact=org.apache.kafka:kafka-tools:"+version, "-DoutputDirectory="+tmp)
	mvn.Dir = tmp
	if out, err := mvn.CombinedOutput(); err != nil {
		t.Fatalf("download Kafka's tools with mvn: %v\n%s", err, out)
	}
	if err := os.Rename(tmp, dir); err != nil {
		t.Fatal(err)
	}
	return jar
}
