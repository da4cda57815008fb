package repair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kit/beats"
)

const (
	// watchInterval is how often open transactions of the group are listed.
	watchInterval = time.Second
	// watchYoung: a transaction younger than this is a step in flight.
	watchYoung = 500 * time.Millisecond
	// watchLogInterval is the pause between two logs while looks fail.
	watchLogInterval = time.Minute
	// watchTimeout bounds one look.
	watchTimeout = 10 * time.Second
)

// Watch ends hanging transactions of the whole group. An open step holds back the read_committed readers of every
// target that it touched. So a transaction is ended immediately if its process is certainly no longer in the group. The
// transaction of a living member is left alone: ending it would only make the member repeat its step, however slow the
// brokers are. A process ends its own transactions that are stuck: older than three quarters of the transaction
// timeout, an age that no step of a lane reaches. Coordinators end all others when the timeout has passed.
type Watch struct {
	Client  *kgo.Client
	Group   string
	Process string // this process's ID
	// Living returns the processes that are members of the group, and whether these are certainly
	// all of them.
	Living  func(*kadm.DescribedGroup) (processes map[string]bool, all bool)
	Timeout time.Duration // of the group's transactions
	Markers *Markers
	Logger  *slog.Logger
	Metrics *Metrics
}

// Run looks until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	var failing beats.Reminder
	beats.Every(ctx, watchInterval, func() {
		switch err := w.look(ctx); {
		case err == nil:
			failing = beats.Reminder{}
		case unreachable(err):
			// The dialer logs that the broker is down.
		case ctx.Err() == nil && failing.Due(watchLogInterval):
			w.Logger.Warn("cannot check for hanging transactions", "err", err)
		}
	})
	return nil
}

// unreachable reports whether err means that a connection could not be opened.
func unreachable(err error) bool {
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

func (w *Watch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	open, err := w.list(ctx, watchYoung)
	if err != nil || len(open) == 0 {
		return err
	}
	stuck, err := w.list(ctx, w.Timeout*3/4)
	if err != nil {
		return err
	}
	living, all, err := w.living(ctx)
	if err != nil {
		return err
	}
	adm := kadm.NewClient(w.Client)
	var failed error
	for id := range open {
		process, _, _ := strings.Cut(strings.TrimPrefix(id, TransactionalIDPrefix(w.Group)), "/")
		old := stuck[id] && process == w.Process
		// If the group does not even show this process, its members say nothing.
		orphan := all && living[w.Process] && !living[process]
		if !old && !orphan {
			continue
		}
		txn, open, err := ongoing(ctx, adm, id)
		if err == nil && open {
			w.Logger.Warn("ending a hanging transaction", "transactional_id", id, "orphaned", orphan, "stuck", old)
			if err = endTransaction(ctx, w.Client, adm, txn, w.Markers); err == nil {
				w.Metrics.ended.Inc()
			}
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// list returns the group's open transactions that are at least this old by the brokers' clocks. One unreachable broker
// is not an error: its transactions soon have another coordinator.
func (w *Watch) list(ctx context.Context, age time.Duration) (map[string]bool, error) {
	req := kmsg.NewPtrListTransactionsRequest()
	req.StateFilters = []string{"Ongoing"}
	req.DurationFilterMillis = age.Milliseconds()
	ids := make(map[string]bool)
	var failed error
	answers := 0
	for _, shard := range w.Client.RequestSharded(ctx, req) {
		resp, ok := shard.Resp.(*kmsg.ListTransactionsResponse)
		err := shard.Err
		if err == nil && ok {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err != nil || !ok {
			failed = err
			continue
		}
		answers++
		for _, t := range resp.TransactionStates {
			if strings.HasPrefix(t.TransactionalID, TransactionalIDPrefix(w.Group)) {
				ids[t.TransactionalID] = true
			}
		}
	}
	if answers == 0 && failed != nil {
		return nil, fmt.Errorf("list open transactions: %w", failed)
	}
	return ids, nil
}

// living returns the processes that are members of the group, and whether these are all of them.
func (w *Watch) living(ctx context.Context) (processes map[string]bool, all bool, err error) {
	groups, err := kadm.NewClient(w.Client).DescribeGroups(ctx, w.Group)
	if err == nil {
		_, err = groups.On(w.Group, func(g *kadm.DescribedGroup) error {
			processes, all = w.Living(g)
			return g.Err
		})
	}
	if err != nil {
		return nil, false, fmt.Errorf("describe group %s: %w", w.Group, err)
	}
	return processes, all, nil
}
