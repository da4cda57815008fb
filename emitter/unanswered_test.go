package emitter

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What became of a step cannot be told, for its coordinator says nothing: all that
// are in it are given up when the transaction timeout has passed, not one after
// another.
func TestAnUnresolvedStepIsGivenUpAsAWhole(t *testing.T) {
	c, l := fakeLane(t)
	l.o.TransactionTimeout = time.Second
	c.ControlKey(int16(kmsg.DescribeTransactions), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		return nil, errors.New("the connection is cut"), true
	})
	var shares []*Share
	for range 20 {
		shares = append(shares, &Share{Token: fakeToken{}, Records: []*kgo.Record{{Topic: "log"}}})
	}
	client, err := newTxnClient(&l.o, "unanswered")
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := l.resolve(client, shares); err == nil {
		t.Fatal("resolved")
	}
	if took := time.Since(begun); took > 4*l.o.TransactionTimeout {
		t.Errorf("given up after %s", took)
	}
	for i, s := range shares {
		if s.Err == nil {
			t.Errorf("share %d is not told that nothing tells", i)
		}
	}
}
