package localkafka

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/waterclock/waterclock/internal/kit/child"
)

// A broker's directory is formatted before its first start: it gets a file with the IDs of cluster, node and
// directory, and one with the versions of the cluster's features. Kafka's tool takes a second of processor time for
// that, in its own JVM, and tests start dozens of brokers. The second file is the same for all brokers. So the tool
// writes it once for each Kafka version, and it is kept in the cache next to the jars.

const (
	metaName      = "meta.properties"
	bootstrapName = "bootstrap.checkpoint"
)

// formatted returns the tools with the tool's file, and writes that file if it is missing. If that fails, the tool
// formats each broker's directory.
func formatted(ctx context.Context, tools Tools) Tools {
	path := tools.Libs + "-" + bootstrapName
	unlock, err := lockedfile.MutexAt(path + ".lock").Lock()
	if err != nil {
		return tools
	}
	defer unlock()
	if tools.bootstrap, err = os.ReadFile(path); err == nil {
		return tools
	}
	if bootstrap, err := askTool(ctx, tools); err == nil && os.WriteFile(path+".new", bootstrap, 0o600) == nil &&
		os.Rename(path+".new", path) == nil {
		tools.bootstrap = bootstrap
	}
	return tools
}

// Formats reports whether directories are formatted without Kafka's tool.
func (t Tools) Formats() bool { return t.bootstrap != nil }

// askTool lets the tool format the directory of a broker that is never started.
func askTool(ctx context.Context, tools Tools) ([]byte, error) {
	dir, err := os.MkdirTemp("", "waterclock-kafka-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &Broker{dir: dir, tools: tools}
	props := newSettings(nil).properties(0, []string{"127.0.0.1:1"}, []string{"127.0.0.1:2"}, nil, b.dataPath())
	if err := b.prepare(ctx, props, newUUID()); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(b.dataPath(), bootstrapName))
}

// format formats the broker's directory, with Kafka's tool if necessary.
func (b *Broker) format(ctx context.Context, clusterID string) error {
	if b.tools.bootstrap == nil {
		return b.formatByTool(ctx, clusterID)
	}
	if err := os.MkdirAll(b.dataPath(), 0o755); err != nil {
		return err
	}
	meta := formatProperties(map[string]string{
		"version": "1", "cluster.id": clusterID, "node.id": fmt.Sprint(b.id), "directory.id": newUUID(),
	})
	if err := os.WriteFile(filepath.Join(b.dataPath(), metaName), meta, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dataPath(), bootstrapName), b.tools.bootstrap, 0o644)
}

func (b *Broker) formatByTool(ctx context.Context, clusterID string) error {
	out := bytes.Buffer{}
	cmd := b.java(ctx, "kafka.tools.StorageTool", "format", "-c", b.propsPath(), "--cluster-id", clusterID)
	cmd.Stdout, cmd.Stderr = &out, &out
	p, err := child.Start(cmd)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, &out)
	}
	return nil
}

// With an archive of its classes (class data sharing) the JVM needs half the processor time to start a broker, and
// tests start dozens. A broker that does nothing and ends writes the archive once for each Java and Kafka version,
// next to the jars in the cache. A JVM that cannot use the archive starts without it. If it cannot be written, it is
// an empty file, and brokers start without it.

// archiveFlag tells the JVM where the archive is.
const archiveFlag = "-XX:SharedArchiveFile="

// archived returns the tools with the flags for a start from the archive. It writes the archive if there is none.
func archived(ctx context.Context, tools Tools, javaVersion string) Tools {
	path := fmt.Sprintf("%s-%08x.jsa", tools.Libs, crc32.ChecksumIEEE([]byte(javaVersion)))
	unlock, err := lockedfile.MutexAt(path + ".lock").Lock()
	if err != nil {
		return tools
	}
	defer unlock()
	info, err := os.Stat(path)
	if err != nil {
		if info, err = writeArchive(ctx, tools, path); err != nil {
			return tools
		}
	}
	if info.Size() > 0 {
		tools.Archive, tools.flags = path, []string{archiveFlag + path, "-Xshare:auto"}
	}
	return tools
}

// Accepts returns an error if the JVM cannot start from an archive: a truncated one, from a full disk, crashes it.
func (t Tools) Accepts(ctx context.Context, archive string) error {
	cmd := exec.CommandContext(ctx, t.java, archiveFlag+archive, "-Xshare:on",
		"-XX:+UseSerialGC", "-cp", filepath.Join(t.Libs, "*"), "-version")
	cmd.Dir = filepath.Dir(archive) // a crash is reported there
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("start from %s: %w\n%s", archive, err, out)
	}
	return nil
}

// writeArchive leaves an archive at path, an empty file if the JVM wrote none.
func writeArchive(ctx context.Context, tools Tools, path string) (os.FileInfo, error) {
	dir, err := os.MkdirTemp("", "waterclock-kafka-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tmp := path + ".new"
	tools.flags = []string{"-XX:ArchiveClassesAtExit=" + tmp}
	c, err := Start(ctx, tools, dir, 1)
	if err == nil {
		err = c.Brokers[0].End(child.Term)
	}
	if err == nil {
		err = tools.Accepts(ctx, tmp)
	}
	if err != nil {
		_ = os.Remove(tmp)
		if err := os.WriteFile(tmp, nil, 0o600); err != nil {
			return nil, err
		}
	}
	if err := os.Rename(tmp, path); err != nil {
		return nil, err
	}
	return os.Stat(path)
}
