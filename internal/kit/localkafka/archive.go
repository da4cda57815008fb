package localkafka

import (
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/waterclock/waterclock/internal/kit/child"
)

// A broker takes half the processor time to start when the JVM finds its classes
// in an archive (class data sharing), and tests start dozens. The archive is
// written once for each Java and Kafka, by a broker that does nothing and ends,
// and lies in the cache beside the jars. A JVM that cannot use it does without,
// and so do tests where it cannot be written: then it is an empty file.

// archiveFlag tells the JVM where the archive is.
const archiveFlag = "-XX:SharedArchiveFile="

// archived returns the tools with the flags that have brokers start from the
// archive, which it writes if there is none.
func archived(ctx context.Context, tools Tools, javaVersion string) Tools {
	path := fmt.Sprintf("%s-%08x.jsa", tools.libs, crc32.ChecksumIEEE([]byte(javaVersion)))
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

// Accepts says why the JVM cannot start from an archive: half of one, from a disk
// that was full, crashes it.
func (t Tools) Accepts(ctx context.Context, archive string) error {
	cmd := exec.CommandContext(ctx, t.java, archiveFlag+archive, "-Xshare:on",
		"-XX:+UseSerialGC", "-cp", filepath.Join(t.libs, "*"), "-version")
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
	c, err := newCluster(ctx, tools, dir, 1, newSettings(nil))
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
