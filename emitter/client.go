package emitter

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

	"github.com/waterclock/waterclock/emitter/repair"
	"github.com/waterclock/waterclock/emitter/targets"
	"github.com/waterclock/waterclock/internal/kafka/partlog"
	"github.com/waterclock/waterclock/internal/kit/beats"
	"github.com/waterclock/waterclock/internal/timer"
)

const (
	// RequestTimeout bounds requests that are made outside the steps.
	RequestTimeout = 2 * time.Second
	// connectionPatience is how long a broker may leave a request of a transactional client unanswered, beyond the time
	// that the request allows, until kgo closes the connection. It does not bound a step: each wait has its own limit
	// (see targets.Within), and the dialer closes connections to unresponsive brokers immediately. But if an EndTxn
	// waits for a dead broker, its answer must still be received, over the connection on which it was sent: see
	// transaction.coordinatorAnswer.
	connectionPatience = targets.BrokerDeath
	// replicaTimeout is how long a broker may wait for replicas. It is less than ownDeadline, because until then
	// the broker does not answer for the other partitions of the request either.
	replicaTimeout = time.Second
	// metadataMinAge is short because every retriable produce error waits for a refresh.
	metadataMinAge = 250 * time.Millisecond
	// concurrentBackoff is the wait after CONCURRENT_TRANSACTIONS.
	concurrentBackoff = 2 * time.Millisecond
	// An ID that had to wait longer than retireAfterConcurrent for its last transaction is retired. After
	// leaveAfterConcurrent the step takes another ID, because the last transaction most likely lacks a marker that
	// cannot be written now.
	retireAfterConcurrent = 100 * time.Millisecond
	leaveAfterConcurrent  = 200 * time.Millisecond
	// leaveHurried replaces leaveAfterConcurrent if such a wait is expected: see txnClient.hurried.
	leaveHurried = 10 * time.Millisecond
	// generationBackoff is the wait after ILLEGAL_GENERATION: the group is rebalancing, and this process does not
	// know the new generation yet.
	generationBackoff = 3 * time.Millisecond
)

// txnClient is one transactional producer.
type txnClient struct {
	*kgo.Client
	*connectionHook
	id     string
	retire bool      // never use this ID again
	used   time.Time // when it began or ended a step last
	// last is the transaction that was announced last, NoProducer before the first one. parts are the partitions that
	// it was to write to. leaders are the epochs of their leaders, at the announce and then at the end.
	last    repair.Producer
	parts   map[string][]int32
	leaders []leaderEpoch
	// answer delivers the answer to the EndTxn of last, once; it is nil if none is expected. The lane's loop waits for
	// it (transaction.end). If the outcome is unknown, the goroutine that resolves the step gets it with the client
	// (transaction.coordinatorAnswer).
	answer <-chan error
	// hurried means that the previous transaction most likely lacks a marker, because it wrote to a partition whose
	// leader cannot be reached. See announce.
	hurried bool
	// versions of the topics used, by Targets.Version, and when each was used last. swept is when idle ones were last
	// looked for.
	versions map[string]topicUse
	swept    time.Time
}

// topicUse has a client's memory of a topic.
type topicUse struct {
	version int64
	at      time.Time
}

const (
	// manyTopics is how many topics a client may know before it forgets those that it has not used for topicIdle: kgo
	// forgets none, keeps about a KiB for each of their partitions, and requests may name every topic of the cluster.
	manyTopics = 256
	topicIdle  = 10 * time.Minute
)

func newTxnClient(o *Options, id string) (*txnClient, error) {
	c := &txnClient{
		connectionHook: new(connectionHook), id: id, last: repair.NoProducer(), versions: make(map[string]topicUse),
	}
	opts := append([]kgo.Opt{}, o.Client...)
	opts = append(opts,
		kgo.WithHooks(c.connectionHook),
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

// renew forgets the previous transaction. Errors from here on do not concern it.
func (tc *txnClient) renew() {
	tc.last, tc.parts, tc.leaders = repair.NoProducer(), nil, nil
	tc.dropped.Store(false)
	tc.heard.Store(false)
	tc.failed.Clear()
}

// leaderOf returns the epoch of the leader of a record's partition, 0 if it is not known, or if a connection to that
// broker has failed: then kgo sends the record again without refreshing its metadata. It refreshes that only when a
// broker answers that it is not the leader. Type tail of internal/ownership names the other records that a client may
// miss.
func (tc *txnClient) leaderOf(r *kgo.Record) partlog.Epoch {
	leader, epoch, err := tc.PartitionLeader(r.Topic, r.Partition)
	if leader < 0 || err != nil {
		return 0
	}
	if _, failed := tc.failed.Load(leader); failed {
		return 0
	}
	return partlog.EpochOf(epoch)
}

// answered reports whether an answer has said that the transaction is committed.
func (tc *txnClient) answered() bool {
	select {
	case err := <-tc.answer:
		tc.answer = nil
		return err == nil
	default:
		return false
	}
}

// abort ends the transaction with an abort, or with an error when ctx ends.
func (tc *txnClient) abort(ctx context.Context) error {
	_, err := targets.Within(ctx, func() (struct{}, error) { return struct{}{}, tc.EndTransaction(ctx, kgo.TryAbort) })
	return err
}

// outdated is not the version of any topic: the client must forget its metadata of the topic.
const outdated = -1

// refresh makes the client forget topics that have changed since it used them. It is called between two transactions.
// By itself kgo learns of new partitions only after minutes and never of another size limit, and it refuses a topic
// that was recreated.
//
// It forgets topics that are idle, too: see manyTopics.
func (tc *txnClient) refresh(parts map[string][]int32, known Targets) {
	var forget []string
	now := time.Now()
	for topic := range parts {
		v := known.Version(topic)
		if was, used := tc.versions[topic]; used && was.version != v {
			forget = append(forget, topic)
		}
		tc.versions[topic] = topicUse{v, now}
	}
	if forget = append(forget, tc.idle(now)...); len(forget) > 0 {
		tc.PurgeTopicsFromClient(forget...)
	}
}

// idle returns the topics that are to be forgotten because they are idle.
func (tc *txnClient) idle(now time.Time) (topics []string) {
	if len(tc.versions) <= manyTopics || now.Sub(tc.swept) < topicIdle/10 {
		return nil
	}
	tc.swept = now
	for topic, use := range tc.versions {
		if now.Sub(use.at) > topicIdle {
			topics = append(topics, topic)
			delete(tc.versions, topic)
		}
	}
	return topics
}

// announce adds all partitions to the transaction in one request. culprits are the topics that the broker refuses for
// good. If there are any, err is set too.
func (tc *txnClient) announce(ctx context.Context, parts map[string][]int32) (culprits map[string]error, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	pid, epoch, err := tc.ProducerID(ctx)
	if err != nil {
		return nil, fmt.Errorf("load producer ID: %w", err)
	}
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = tc.id, pid, epoch
	tc.last, tc.parts = repair.Producer{ID: pid, Epoch: epoch}, parts
	tc.leaders = leadersOf(tc.Client, tc.parts)
	for topic, ps := range parts {
		t := kmsg.NewAddPartitionsToTxnRequestTopic()
		t.Topic, t.Partitions = topic, ps
		req.Topics = append(req.Topics, t)
	}
	patience := leaveAfterConcurrent
	if tc.hurried {
		patience = leaveHurried
	}
	start := time.Now()
	for {
		resp, err := targets.Within(ctx,
			func() (*kmsg.AddPartitionsToTxnResponse, error) { return req.RequestWith(ctx, tc.Client) })
		if err == nil {
			culprits, err = announceErrors(resp)
		}
		waited := time.Since(start)
		if errors.Is(err, kerr.ConcurrentTransactions) && waited <= patience && beats.Sleep(ctx, concurrentBackoff) {
			continue
		}
		tc.retire = tc.retire || waited > retireAfterConcurrent
		if err != nil {
			err = fmt.Errorf("announce partitions: %w", err)
		}
		return culprits, err
	}
}

// announceErrors returns the refused topics of an answer, or another error if there is one.
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

// awaitKnown waits until the client has stored the partitions of every topic of the step. If a topic is new to the
// client, kgo v1.22.2 sends its records to the broker before it stores the topic's partitions. After a fast answer,
// a fast EndTransaction then finds nothing produced: it aborts and returns nil. The abort would be taken for a
// commit, and the step lost. PartitionLeader reads the same state as EndTransaction. Only the first use of a topic by
// a client ever waits here.
func (tc *txnClient) awaitKnown(ctx context.Context, parts map[string][]int32) error {
	deadline := time.Now().Add(answerTimeout)
	for topic, ps := range parts {
		for {
			leader, _, err := tc.PartitionLeader(topic, ps[0])
			if leader >= 0 || err != nil { // on an error the partition is known but has no leader now
				break
			}
			if !beats.Sleep(ctx, time.Millisecond) || time.Now().After(deadline) {
				return fmt.Errorf("wait for the partitions of %s: %w", topic,
					cmp.Or(ctx.Err(), context.DeadlineExceeded))
			}
		}
	}
	return nil
}

// ofTopic reports whether an error concerns the topic, whatever the record is.
func ofTopic(err error) bool {
	return errors.Is(err, kerr.InvalidTopicException) || errors.Is(err, kerr.TopicAuthorizationFailed)
}

// refusedHere reports whether kgo itself found a record too large. Then that record is certainly the culprit. If the
// broker refused a batch, kgo's error names the compressed size.
func refusedHere(err error) bool {
	text := err.Error()
	return errors.Is(err, kerr.MessageTooLarge) && strings.Contains(text, "(uncompressed_bytes=") &&
		!strings.Contains(text, ", compressed_bytes=")
}

// noteEnd notes how the client's transaction ended, and which brokers led its partitions then. A leader that was lost
// and came back since the announce may have missed the marker of the previous transaction. An ID is retired after an
// abort: its next transaction would be a commit, whose marker could close a partition that lacks the abort's.
func (tc *txnClient) noteEnd(m *repair.Markers, how repair.Ending) {
	tc.retire = tc.retire || how != repair.EndingCommit
	if m == nil {
		return
	}
	m.NoteEnd(tc.id, tc.last, how, tc.parts)
	began := tc.leaders
	tc.leaders = leadersOf(tc.Client, tc.parts)
	if leadersMoved(tc.Client, m, began) || leadersMoved(tc.Client, m,
		slices.DeleteFunc(slices.Clone(tc.leaders), func(e leaderEpoch) bool { return e.ok })) {
		tc.retire = true
	}
}

// leaderEpoch is the leader of a partition in a client's metadata; ok says that there was one.
type leaderEpoch struct {
	timer.TopicPartition
	epoch int32
	ok    bool
}

// leadersOf returns the leaders of partitions in a client's metadata. It leaves out topics that it does not know,
// because it has written nothing to them.
func leadersOf(cl *kgo.Client, parts map[string][]int32) (all []leaderEpoch) {
	for topic, ps := range parts {
		for _, p := range ps {
			if leader, epoch, err := cl.PartitionLeader(topic, p); leader >= 0 || err != nil {
				all = append(all, leaderEpoch{timer.TopicPartition{Topic: topic, Partition: p}, epoch, err == nil})
			}
		}
	}
	return all
}

// leadersMoved reports whether, as far as a client knows, the leader of a partition has changed since leadersOf. It
// reports each such partition to markers.
func leadersMoved(cl *kgo.Client, m *repair.Markers, leaders []leaderEpoch) (moved bool) {
	for _, was := range leaders {
		leader, epoch, err := cl.PartitionLeader(was.Topic, was.Partition)
		if forgotten := leader < 0 && err == nil; !was.ok || !forgotten && (epoch != was.epoch || err != nil) {
			moved = true
			m.Moved(was.TopicPartition)
		}
	}
	return moved
}
