package localkafka

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/waterclock/waterclock/internal/kit/child"
)

// A broker's directory is formatted before its first start: it gets a file with the IDs
// of cluster, node and directory, and one with the versions of the cluster's features.
// Kafka's tool takes a second of processor time for that, in a JVM of its own, and
// tests start dozens of brokers. The second file is the same for all, so the tool
// writes it once for each Kafka, and it lies in the cache beside the jars.

const (
	metaName      = "meta.properties"
	bootstrapName = "bootstrap.checkpoint"
)

// formatted returns the tools with what the tool has written, which it writes if it is
// not there. Without, each broker's directory is left to the tool.
func formatted(ctx context.Context, tools Tools) Tools {
	path := tools.libs + "-" + bootstrapName
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

// askTool has the tool format the directory of a broker that is never started.
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

// format formats the broker's directory, if need be with Kafka's tool.
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
