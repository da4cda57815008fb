package rig

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/emitter/repair"
)

// Transactions is a transactional producer that writes to the partitions that records name.
type Transactions struct {
	s  *Setup
	cl *kgo.Client
}

// Foreign returns a producer of somebody else.
func (s *Setup) Foreign(name string) *Transactions { return s.transactional(name + "-" + s.Requests) }

// Gone returns a producer as an owner has it that has left the group.
func (s *Setup) Gone(name string) *Transactions {
	return s.transactional(repair.TransactionalIDPrefix(s.Group()) + name + "/0/1")
}

func (s *Setup) transactional(id string) *Transactions {
	s.Helper()
	return &Transactions{s, s.Manual(kgo.TransactionalID(id), kgo.TransactionTimeout(5*time.Minute))}
}

// Begin begins a transaction with these records.
func (tx *Transactions) Begin(recs ...*kgo.Record) {
	tx.s.Helper()
	if err := tx.cl.BeginTransaction(); err != nil {
		tx.s.Fatalf("begin: %v", err)
	}
	Send(tx.s, tx.cl, recs...)
}

// Add adds records to it.
func (tx *Transactions) Add(recs ...*kgo.Record) {
	tx.s.Helper()
	Send(tx.s, tx.cl, recs...)
}

// End ends it.
func (tx *Transactions) End(commit kgo.TransactionEndTry) {
	tx.s.Helper()
	if err := tx.cl.EndTransaction(tx.s.Context(), commit); err != nil {
		tx.s.Fatalf("end transaction: %v", err)
	}
}
