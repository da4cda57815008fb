package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/waterclock/waterclock/intake"
	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/datadir"
	"github.com/waterclock/waterclock/internal/node/ops"
	"github.com/waterclock/waterclock/statestore"
)

// openStore opens the local store. If the store dies later, end is called with the reason.
func (in *instance) openStore(ctx context.Context, end context.CancelCauseFunc) error {
	var cluster kadm.Metadata
	err := in.cluster.insist(ctx, "the cluster's ID cannot be read", func() (err error) {
		cluster, err = kadm.NewClient(in.cluster.client).BrokerMetadata(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the cluster's ID: %w", err)
	}
	if err := os.MkdirAll(in.cfg.DataDir, 0o700); err != nil {
		return fmt.Errorf("data directory %s cannot be made: %w; choose another one with --data-dir",
			in.cfg.DataDir, err)
	}
	home := intake.Murmur2Partition
	if in.cfg.PartitionerCheck == config.CheckOff {
		home = nil
	}
	in.store, err = statestore.Open(statestore.Options{
		Home: home,
		FS:   in.o.FS, Dir: datadir.Store(in.cfg.DataDir), Logger: in.log, Now: in.o.Now,
		FlushInterval: in.o.FlushInterval,
		Memory:        uint64(in.shares.Store), BeforeFlush: in.partitions.checkpoint,
		OnFatal: func(err error) {
			err = storeEnded(in.cfg.DataDir, err)
			in.log.Error("ending the process", "err", err)
			in.storeDead.Store(true)
			end(err)
		},
	})
	if err != nil {
		return fmt.Errorf("%w; %s", err, storeAdvice(err))
	}
	if err := in.store.BindCluster(cluster.Cluster); err != nil {
		return errors.Join(err, in.store.Close())
	}
	if err := datadir.NoteNames(in.cfg.DataDir, in.topics.sets()); err != nil {
		in.log.Warn("the names of topics cannot be noted in the data directory", "err", err)
	}
	if err := ops.WriteToken(in.cfg.DataDir, in.token); err != nil {
		in.log.Warn("cannot write the token for waterclock drain into the data directory", "err", err)
	}
	in.o.Registry.MustRegister(in.store.Collector())
	return nil
}

func (in *instance) closeStore() {
	if err := in.store.Close(); err != nil && !errors.Is(err, statestore.ErrEnded) {
		in.log.Error("close the store", "err", err)
	}
}

// storeAdvice says what to do about a data directory that cannot be opened.
func storeAdvice(err error) string {
	switch {
	case errors.Is(err, statestore.ErrInUse):
		return "stop that process, or give this one a directory of its own with --data-dir"
	case errors.Is(err, statestore.ErrNewerFormat):
		return "run the version that wrote it, or delete the directory, which costs a replay"
	case errors.Is(err, statestore.ErrForeignDirectory):
		return "choose another directory with --data-dir"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOSPC):
		return "see to it that this process may write there, or choose another directory with --data-dir"
	}
	return "if the directory is damaged, delete it, which costs a replay"
}

// storeEnded returns the error with which an instance ends when its local store cannot go on.
func storeEnded(dataDir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("the disk of the data directory %s is full (%w): make room, or give it a larger one, and "+
			"start the instance again; nothing is lost, because pending timers are in Kafka", dataDir, err)
	}
	return fmt.Errorf("the local store in %s cannot go on: %w", dataDir, err)
}
