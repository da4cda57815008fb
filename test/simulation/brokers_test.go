package simulation

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// cluster is the brokers. They may be restarted.
type cluster struct {
	opts []kfake.Opt
	dir  string // of their data, if they are restarted

	// mu is held for reading while they are used. In a bubble no time passes for a goroutine that waits for a mutex, so
	// nobody waits for this one.
	mu sync.RWMutex
	is *kfake.Cluster
}

// on calls do with the brokers.
func (c *cluster) on(do func(*kfake.Cluster)) {
	for !c.mu.TryRLock() {
		<-time.After(time.Millisecond)
	}
	defer c.mu.RUnlock()
	do(c.is)
}

func (c *cluster) start() (err error) {
	c.is, err = kfake.NewCluster(c.opts...)
	return err
}

// restart stops the brokers and starts them again. In between it calls do.
func (c *cluster) restart(do func()) error {
	for !c.mu.TryLock() {
		<-time.After(time.Millisecond)
	}
	defer c.mu.Unlock()
	c.stop()
	if err := c.endFetchSessions(); err != nil {
		return err
	}
	do()
	return c.start()
}

// endFetchSessions has no fetch session outlive a restart, as with real brokers. kfake keeps them, but not their topic
// IDs: a client that goes on with one gets records that it cannot tell the topic of, for ever. IDs are not given again.
func (c *cluster) endFetchSessions() error {
	path := filepath.Join(c.dir, "session_state.json")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) { // there was nothing to keep: no session, no member, no transaction
		return nil
	} else if err != nil {
		return err
	}
	state := make(map[string]json.RawMessage)
	if err := json.Unmarshal(text, &state); err != nil {
		return err
	}
	type session struct {
		ID    int32 `json:"id"`
		Epoch int32 `json:"e"`
	}
	sessions := make(map[string][]session) // by broker
	if is := state["fetchSessions"]; is != nil {
		if err := json.Unmarshal(is, &sessions); err != nil {
			return err
		}
	}
	for _, of := range sessions {
		for i := range of {
			of[i].Epoch = math.MaxInt32 // no client's
		}
	}
	if state["fetchSessions"], err = json.Marshal(sessions); err != nil {
		return err
	}
	if text, err = json.Marshal(state); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

func (c *cluster) stop() {
	synctest.Wait() // kfake may end with its lock held, and never, while a sleeper wakes up
	c.is.Close()
}

func (c *cluster) group(name string) (is *kfake.GroupInfo) {
	c.on(func(c *kfake.Cluster) { is = c.GroupInfo(name) })
	return is
}

func (c *cluster) topic(name string) (is *kfake.TopicInfo) {
	c.on(func(c *kfake.Cluster) { is = c.TopicInfo(name) })
	return is
}

func (c *cluster) partitions(topic string) (all []*kfake.PartitionInfo) {
	c.on(func(c *kfake.Cluster) { all = c.PartitionInfos(topic) })
	return all
}

func (c *cluster) fault(f kfake.Fault) (h *kfake.FaultHandle) {
	c.on(func(c *kfake.Cluster) { h = c.Fault(f) })
	return h
}

// move gives a partition another leader, and so another leader epoch.
func (c *cluster) move(topic string, partition, to int32) (err error) {
	c.on(func(c *kfake.Cluster) { err = c.MoveTopicPartition(topic, partition, to) })
	return err
}
