package transaction

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/hanging"
	"github.com/waterclock/waterclock/internal/targets"
)

const (
	// RequestTimeout bounds questions that are asked beside the steps.
	RequestTimeout = 2 * time.Second
	// connectionPatience is how long a broker may leave a request of a transactional client
	// unanswered, beyond what it is told to wait, until kgo closes the connection. That is
	// no limit of ours, each wait has its own (see targets.Within), and connections to brokers that
	// are unresponsive are closed at once. But an EndTxn that waits for a dead broker is to
	// be heard, over the connection that it was sent on: see Lane.said.
	connectionPatience = targets.BrokerDeath
	// replicaTimeout is what a broker is told to wait for replicas: less than
	// ownDeadline, for until then it says nothing of the other partitions of the
	// request either.
	replicaTimeout = time.Second
	// metadataMinAge: every retriable produce error waits for a refresh.
	metadataMinAge = 250 * time.Millisecond
	// concurrentBackoff is the wait after CONCURRENT_TRANSACTIONS.
	concurrentBackoff = 2 * time.Millisecond
	// retireAfterConcurrent: an ID that had to wait longer is retired, and one
	// that waits for leaveAfterConcurrent is left: its last transaction lacks a
	// marker that cannot be written now.
	retireAfterConcurrent = 100 * time.Millisecond
	leaveAfterConcurrent  = 200 * time.Millisecond
	// leaveHurried is the same where that is to be expected.
	leaveHurried = 10 * time.Millisecond
	// generationBackoff is the wait after ILLEGAL_GENERATION: the group is
	// rebalancing and this member's new generation is not known here yet.
	generationBackoff = 3 * time.Millisecond
)

// txnClient is one transactional producer.
type txnClient struct {
	*kgo.Client
	*seat
	id     string
	retire bool      // never begin again under this ID
	used   time.Time // when it began or ended a step last
	// last is the transaction announced last, NoProducer before the first, parts what it
	// was to write to, and leaders the epochs of their leaders, first of the announce, then
	// of the end.
	last    hanging.Producer
	parts   map[string][]int32
	leaders []leaderEpoch
	// answer brings what comes of last's EndTxn, once; nil: none is to come. The lane's loop
	// waits for it (Lane.end); whoever resolves the step gets it with the client (Lane.said).
	answer <-chan error
	// hurried: the transaction before most likely lacks a marker, as it wrote to a partition
	// whose leader cannot be reached; see announce.
	hurried bool
	// versions of the topics used, by Targets.Version.
	versions map[string]int64
}

func newTxnClient(o *Options, id string) (*txnClient, error) {
	c := &txnClient{seat: new(seat), id: id, last: hanging.NoProducer(), versions: make(map[string]int64)}
	opts := append([]kgo.Opt{}, o.Client...)
	opts = append(opts,
		kgo.WithHooks(c.seat),
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(o.TransactionTimeout),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ManualFlushing(),
		kgo.ProducerLinger(0),
		kgo.MaxBufferedRecords(8*MaxStepEntries),
		kgo.ProducerBatchMaxBytesFn(o.Targets.BatchMaxBytes),
		kgo.ProducerBatchCompression(kgo.SnappyCompression(), kgo.NoCompression()),
		kgo.ProduceRequestTimeout(replicaTimeout),
		kgo.RequestTimeoutOverhead(connectionPatience),
		kgo.RetryTimeout(o.TransactionTimeout/2),
		kgo.MetadataMinAge(metadataMinAge),
		kgo.ConcurrentTransactionsBackoff(concurrentBackoff),
	)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, fmt.Errorf("build transactional client: %w", err)
	}
	c.Client = cl
	return c, nil
}

// renew forgets the former transaction: what fails from here on is not its.
func (c *txnClient) renew() {
	c.last, c.parts, c.leaders = hanging.NoProducer(), nil, nil
	c.dropped.Store(false)
	c.heard.Store(false)
}

// commit sends EndTxn; answer brings what comes of it, however late.
func (c *txnClient) commit(ctx context.Context) {
	answer := make(chan error, 1)
	c.answer = answer
	go func() { answer <- c.EndTransaction(ctx, kgo.TryCommit) }()
}

// answered reports whether an answer has come since that says that the transaction is
// committed.
func (c *txnClient) answered() bool {
	select {
	case err := <-c.answer:
		c.answer = nil
		return err == nil
	default:
		return false
	}
}

// abort ends the transaction with an abort, or with an error when ctx ends.
func (c *txnClient) abort(ctx context.Context) error {
	_, err := targets.Within(ctx, func() (struct{}, error) { return struct{}{}, c.EndTransaction(ctx, kgo.TryAbort) })
	return err
}

// outdated is no version: what the client knows of the topic is to be forgotten.
const outdated = -1

// refresh has the client forget topics that have changed since it used them,
// between two transactions. kgo learns of new partitions after minutes, of
// another size limit never, and refuses a topic that was recreated.
func (c *txnClient) refresh(parts map[string][]int32, known Targets) {
	var changed []string
	for topic := range parts {
		v := known.Version(topic)
		if was, used := c.versions[topic]; used && was != v {
			changed = append(changed, topic)
		}
		c.versions[topic] = v
	}
	if len(changed) > 0 {
		c.PurgeTopicsFromClient(changed...)
	}
}

// announce adds all partitions to the transaction in one request. culprits are
// the topics that the broker refuses for good; err is set with them.
func (c *txnClient) announce(ctx context.Context, parts map[string][]int32) (culprits map[string]error, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	pid, epoch, err := c.ProducerID(ctx)
	if err != nil {
		return nil, fmt.Errorf("load producer ID: %w", err)
	}
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = c.id, pid, epoch
	c.last, c.parts = hanging.Producer{ID: pid, Epoch: epoch}, parts
	c.leaders = leadersOf(c.Client, c.parts)
	for topic, ps := range parts {
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = topic, ps
		req.Topics = append(req.Topics, t)
	}
	patience := leaveAfterConcurrent
	if c.hurried {
		patience = leaveHurried
	}
	start := time.Now()
	for {
		resp, err := targets.Within(ctx, func() (*kmsg.AddPartitionsToTxnResponse, error) { return req.RequestWith(ctx, c.Client) })
		if err != nil {
			return nil, fmt.Errorf("announce partitions: %w", err)
		}
		culprits, err = announceErrors(resp)
		if waited := time.Since(start); !errors.Is(err, kerr.ConcurrentTransactions) || waited > patience {
			c.retire = c.retire || waited > retireAfterConcurrent
			if err != nil {
				err = fmt.Errorf("announce partitions: %w", err)
			}
			return culprits, err
		}
		if err := sleep(ctx, concurrentBackoff); err != nil {
			return nil, fmt.Errorf("announce partitions: %w", kerr.ConcurrentTransactions)
		}
	}
}

// announceErrors sorts the answer: refused topics, or the first other error.
func announceErrors(resp *kmsg.AddPartitionsToTxnResponse) (culprits map[string]error, err error) {
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			e := kerr.ErrorForCode(p.ErrorCode)
			switch {
			case e == nil, errors.Is(e, kerr.OperationNotAttempted):
			case targets.RefusedForGood(e):
				if culprits == nil {
					culprits = make(map[string]error)
				}
				culprits[t.Topic] = e
			default:
				err = fmt.Errorf("%s/%d: %w", t.Topic, p.Partition, e)
			}
		}
	}
	if err == nil && culprits != nil {
		err = errEmissions
	}
	return culprits, err
}

// awaitKnown waits until the client has stored the partitions of every topic of
// the step. kgo v1.22.2 hands the records of a topic that is new to the client
// to the broker before it stores the topic's partitions; a fast answer and a
// fast EndTransaction then find nothing produced, and it aborts and returns nil.
// An abort taken for a commit would lose the step. PartitionLeader reads what
// EndTransaction reads. Only a client's first use of a topic ever waits here.
func (c *txnClient) awaitKnown(ctx context.Context, parts map[string][]int32) error {
	deadline := time.Now().Add(answerTimeout)
	for topic, ps := range parts {
		for {
			leader, _, err := c.PartitionLeader(topic, ps[0])
			if leader >= 0 || err != nil { // an error: known, and without a leader just now
				break
			}
			if err := sleep(ctx, time.Millisecond); err != nil || time.Now().After(deadline) {
				return fmt.Errorf("wait for the partitions of %s: %w", topic, cmp.Or(err, context.DeadlineExceeded))
			}
		}
	}
	return nil
}

// ofTopic reports whether an error is about a topic, whatever the record.
func ofTopic(err error) bool {
	return errors.Is(err, kerr.InvalidTopicException) || errors.Is(err, kerr.TopicAuthorizationFailed)
}

// refusedHere reports whether kgo itself found a record too large: for that one
// it is certain. kgo names the compressed size where the broker refused a batch.
func refusedHere(err error) bool {
	text := err.Error()
	return errors.Is(err, kerr.MessageTooLarge) && strings.Contains(text, "(uncompressed_bytes=") && !strings.Contains(text, ", compressed_bytes=")
}

// noteEnd notes how the client's transaction ended, and who led its partitions then. A
// leader that went and came back since the announce may have missed the marker
// of the transaction before. An abort is the last that an ID does: its next
// transaction would be a commit, and could close with that what lacks the abort.
func (c *txnClient) noteEnd(m *hanging.Markers, how hanging.Ending) {
	c.retire = c.retire || how != hanging.EndingCommit
	if m == nil {
		return
	}
	m.NoteEnd(c.id, c.last, how, c.parts)
	began := c.leaders
	c.leaders = leadersOf(c.Client, c.parts)
	if leadersMoved(c.Client, m, began) || leadersMoved(c.Client, m, slices.DeleteFunc(slices.Clone(c.leaders), func(e leaderEpoch) bool { return e.ok })) {
		c.retire = true
	}
}
