package ops

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/statestore"
)

// StoreDir returns the directory of the local store within a data directory.
func StoreDir(dataDir string) string { return filepath.Join(dataDir, "store") }

// namesFile is a file in the data directory. It has a line for each request topic that the directory was used for:
// UUID, partition count, name. If one of them changes, a line is added. The file is for people, and nothing depends on
// it.
const namesFile = "topics.txt"

// Names are request topics by UUID.
type Names map[[16]byte]named

type named struct {
	name       string
	partitions int32
}

// ReadNames returns the names in the directory's file. If several topics have had the same name, the last line with the
// name belongs to the topic that was served last.
func ReadNames(dataDir string) (Names, error) {
	f, err := os.Open(filepath.Join(dataDir, namesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Names{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, last := make(Names), make(map[string][16]byte)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var id, name string
		var partitions int32
		if _, err := fmt.Sscan(lines.Text(), &id, &partitions, &name); err != nil || partitions <= 0 {
			continue
		}
		uuid, err := base64.RawURLEncoding.DecodeString(id)
		if err != nil || len(uuid) != 16 {
			continue
		}
		if before, twice := last[name]; twice && before != [16]byte(uuid) {
			all[before] = named{name + " before it was recreated", all[before].partitions}
		}
		last[name], all[[16]byte(uuid)] = [16]byte(uuid), named{name, partitions}
	}
	return all, lines.Err()
}

// NoteNames adds request topics to the directory's file if they are new there or have changed.
func NoteNames(dataDir string, sets []topics.Set) error {
	known, err := ReadNames(dataDir)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for i := range sets {
		t := &sets[i].Request
		if sets[i].Delay != 0 {
			continue // the store has nothing of a fixed-delay topic
		}
		if known[t.ID] != (named{t.Name, t.Partitions}) {
			fmt.Fprintf(&lines, "%s %d %s\n", topics.TopicID(t.ID), t.Partitions, t.Name)
		}
	}
	if lines.Len() == 0 {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(dataDir, namesFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(lines.String())
	return errors.Join(err, f.Close())
}

// Partition names a partition of the store.
func (n Names) Partition(id statestore.PartitionID) string {
	topic, known := n[id.Topic]
	if !known {
		topic.name = topics.TopicID(id.Topic)
	}
	return fmt.Sprintf("%s/%d", topic.name, id.Partition)
}
