package localkafka

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"
)

const (
	kafkaVersion    = "4.3.1"
	downloadTimeout = 5 * time.Minute
)

const (
	// MinJava is the oldest Java that runs a broker.
	MinJava = 17
	// EnvLibs is the environment variable with the path of a directory of jars to use.
	EnvLibs = "WATERCLOCK_KAFKA_LIBS"
)

//go:embed broker/pom.xml
var pomXML []byte

// Tools holds everything needed to start a broker.
type Tools struct {
	java string // path of the java command
	Libs string // directory with the broker's jars
	// flags are further flags of the JVM.
	flags   []string
	Archive string // path of the class archive that brokers start from, or empty
	// bootstrap is the file that Kafka's tool writes when it formats a directory; if nil, the tool formats each one.
	bootstrap []byte
}

// Find finds Java and the jars, which it downloads if they are not cached. Its error says, in a sentence, what is
// missing.
func Find(ctx context.Context) (Tools, error) {
	java, version, err := findJava(ctx)
	if err != nil {
		return Tools{}, err
	}
	libs, err := findLibs(ctx)
	if err != nil {
		return Tools{}, err
	}
	tools := Tools{java: java, Libs: libs}
	if os.Getenv(EnvLibs) != "" { // not ours to write to
		return tools, nil
	}
	return archived(ctx, formatted(ctx, tools), version), nil
}

// findJava returns the java command of JAVA_HOME, or else of the path, and its version text.
func findJava(ctx context.Context) (path, version string, err error) {
	name := "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
		name = filepath.Join(home, "bin", "java")
	}
	path, err = exec.LookPath(name)
	if err != nil {
		return "", "", fmt.Errorf("no java command: %w", err)
	}
	out, err := exec.CommandContext(ctx, path, "-version").CombinedOutput()
	if err != nil {
		return "", "", fmt.Errorf("ask java for its version: %w", err)
	}
	if v := javaMajor(string(out)); v < MinJava {
		return "", "", fmt.Errorf("java is version %d, need %d or later", v, MinJava)
	}
	return path, string(out), nil
}

var javaVersion = regexp.MustCompile(`version "(?:1\.)?(\d+)`)

// javaMajor reads the major version from the output of `java -version`: 8 for "1.8.0_392", 17 for "17.0.15", 0 if
// there is none.
func javaMajor(out string) int {
	m := javaVersion.FindStringSubmatch(out)
	if m == nil {
		return 0
	}
	v, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	return v
}

// findLibs returns the directory of jars.
func findLibs(ctx context.Context) (string, error) {
	if dir := os.Getenv(EnvLibs); dir != "" {
		if jars, _ := filepath.Glob(filepath.Join(dir, "kafka_*.jar")); len(jars) == 0 {
			return "", fmt.Errorf("%s=%s holds no kafka_*.jar", EnvLibs, dir)
		}
		return dir, nil
	}
	return cached("kafka-"+kafkaVersion, func(tmp string) error { // the broker and all it needs, 44 MB
		if err := os.WriteFile(filepath.Join(tmp, "pom.xml"), pomXML, 0o644); err != nil {
			return fmt.Errorf("write the pom: %w", err)
		}
		return maven(ctx, tmp, "dependency:copy-dependencies", "-DincludeScope=runtime")
	})
}

// cached returns a directory of the cache. If it is missing, fill makes it in a temporary directory, below
// downloaded. Only complete directories are renamed into place, so an existing one is complete.
func cached(name string, fill func(tmp string) error) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache directory (or set %s): %w", EnvLibs, err)
	}
	dir := filepath.Join(cache, "waterclock", name)
	if isDir(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("make the cache directory: %w", err)
	}
	unlock, err := lockedfile.MutexAt(dir + ".lock").Lock()
	if err != nil {
		return "", fmt.Errorf("lock the cache: %w", err)
	}
	defer unlock()
	if isDir(dir) { // another process was faster
		return dir, nil
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "download-")
	if err != nil {
		return "", fmt.Errorf("make a directory for the download: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := fill(tmp); err != nil {
		return "", err
	}
	if err := os.Rename(filepath.Join(tmp, downloaded), dir); err != nil {
		return "", fmt.Errorf("put the jars in place: %w", err)
	}
	return dir, nil
}

// downloaded is where Maven puts jars.
const downloaded = "libs"

// maven lets Maven copy jars to downloaded in a directory.
func maven(ctx context.Context, dir, goal string, args ...string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("the jars are not cached and there is no mvn command: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, mvn,
		slices.Concat([]string{"-B", "-q", goal, "-DoutputDirectory=" + downloaded}, args)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("download jars with mvn: %w\n%s", err, out)
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Java returns a Java command with Kafka's clients and all other jars of the broker on its class path, and further
// jars.
func (t Tools) Java(jars []string, args ...string) *exec.Cmd {
	path := strings.Join(append([]string{filepath.Join(t.Libs, "*")}, jars...), string(filepath.ListSeparator))
	return exec.Command(t.java, slices.Concat(quickStart(), []string{"-cp", path}, t.flags, args)...)
}

// Jar returns the path of a jar of its own, which Maven downloads when it is wanted first.
func Jar(ctx context.Context, group, artifact, version string) (string, error) {
	name := artifact + "-" + version
	dir, err := cached(name, func(tmp string) error {
		return maven(ctx, tmp, "dependency:copy", "-Dartifact="+group+":"+artifact+":"+version)
	})
	return filepath.Join(dir, name+".jar"), err
}
