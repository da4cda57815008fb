package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/span"
	"github.com/waterclock/waterclock/statestore"
)

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
		return fmt.Errorf("the disk of the data directory %s is full (%w): make room, or give it a larger one, and start the instance again; nothing is lost, because pending timers are in Kafka", dataDir, err)
	}
	return fmt.Errorf("the local store in %s cannot go on: %w", dataDir, err)
}

// refusedSetting names the setting that the brokers do not allow, where that is
// what err says.
func refusedSetting(cfg *config.Config, err error) error {
	switch {
	case errors.Is(err, kerr.InvalidSessionTimeout):
		return &config.Problem{
			Setting: "session-timeout", Found: span.String(cfg.SessionTimeout),
			Need: "to lie within the brokers' group.min.session.timeout.ms and group.max.session.timeout.ms",
		}
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return &config.Problem{
			Setting: "transaction-timeout", Found: span.String(cfg.TransactionTimeout),
			Need: "to be at most the brokers' transaction.max.timeout.ms",
		}
	}
	return err
}

// resign leaves the group for good: a changelog was written by a later version,
// and only instances of that can serve it. The process stays up, not ready, so
// that it is seen.
func (in *instance) resign(why error) {
	in.group.Resign()
	in.leave(why)
}

// standAside waits for the end of ctx if the group was left by resign.
func (in *instance) standAside(ctx context.Context, err error) {
	why := context.Cause(in.member)
	if err != nil || why == nil || ctx.Err() != nil {
		return
	}
	in.setPhase("left the group: " + why.Error() + "; run a version that can read it")
	t := time.NewTicker(stoppedEvery)
	defer t.Stop()
	for {
		in.log.Error("left the group until a restart", "group", in.cfg.Group, "err", why)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}
