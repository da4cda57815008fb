package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/kafka/topics"
	"github.com/waterclock/waterclock/internal/node/config"
)

// ACLServer returns the options by which kafka-acls.sh reaches the cluster.
func ACLServer(cfg *config.Config) string {
	server := "--bootstrap-server " + strings.Join(cfg.Brokers, ",")
	if cfg.TLS || cfg.SASLMechanism != config.SASLNone {
		server += " --command-config admin.properties"
	}
	return server
}

// Missing returns the sentence for a missing permission, with the command that grants it.
func Missing(cfg *config.Config, g topics.Grant) string {
	return g.Missing(ACLServer(cfg), Principal(cfg))
}

// MissingTopics returns the grants that the client lacks, with the missing operations only. It checks only grants for
// single topics, because brokers cannot be asked about prefixes. If the client is not allowed to describe a topic, all
// operations on it are missing, because nearly every permission on a topic includes Describe.
func MissingTopics(ctx context.Context, cl *kgo.Client, grants []topics.Grant) ([]topics.Grant, error) {
	var names []string
	grants = slices.DeleteFunc(slices.Clone(grants), func(g topics.Grant) bool {
		return g.Resource != kmsg.ACLResourceTypeTopic || g.Prefixed || g.Name == "*"
	})
	for _, g := range grants {
		names = append(names, g.Name)
	}
	if len(names) == 0 {
		return nil, nil
	}
	details, err := AskTopics(ctx, cl, names)
	if err != nil {
		return nil, err
	}
	var missing []topics.Grant
	for _, g := range grants {
		d, ok := details[g.Name]
		if !ok || !d.Refused && len(d.May) == 0 {
			continue // the broker does not say
		}
		var lacks []kmsg.ACLOperation
		for _, op := range g.Operations {
			if !slices.Contains(d.May, op) && (d.Refused || d.Absent || op != kmsg.ACLOperationCreate) {
				lacks = append(lacks, op)
			}
		}
		if len(lacks) > 0 {
			missing = append(missing, g.Only(lacks...))
		}
	}
	return missing, nil
}

// TopicRights are a client's permissions on a topic, by a broker.
type TopicRights struct {
	Absent  bool // the topic does not exist
	Refused bool // the client is not allowed to know whether the topic exists
	May     []kmsg.ACLOperation
}

// AskTopics asks the brokers which rights the client has to topics. It sends the request itself, because kadm fails for
// all topics if the client is not allowed to describe one of them.
func AskTopics(ctx context.Context, cl *kgo.Client, names []string) (map[string]TopicRights, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.IncludeTopicAuthorizedOperations = true
	for _, n := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &n
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("ask for the rights to topics: %w", err)
	}
	rights := make(map[string]TopicRights, len(names))
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		err := kerr.ErrorForCode(t.ErrorCode)
		rights[*t.Topic] = TopicRights{
			Absent:  errors.Is(err, kerr.UnknownTopicOrPartition),
			Refused: errors.Is(err, kerr.TopicAuthorizationFailed),
			May:     kadm.DecodeACLOperations(t.AuthorizedOperations),
		}
	}
	return rights, nil
}

// Lacks reports whether the client is missing permission on a group, or on the transactional IDs with a prefix. id is
// one of these IDs. To find out, Lacks sends a request that changes nothing: the heartbeat of a member that does not
// exist, or the end of a transaction that does not exist. Any answer of a broker except a refusal means that the client
// has the permission. For other resources, Lacks returns false.
func Lacks(ctx context.Context, cl *kgo.Client, g topics.Grant, id string) (bool, error) {
	var code int16
	var err error
	switch g.Resource {
	case kmsg.ACLResourceTypeGroup:
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group, req.MemberID = g.Name, "waterclock-rights"
		var resp *kmsg.HeartbeatResponse
		if resp, err = req.RequestWith(ctx, cl); err == nil {
			code = resp.ErrorCode
		}
	case kmsg.ACLResourceTypeTransactionalId:
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID = id
		var resp *kmsg.EndTxnResponse
		if resp, err = req.RequestWith(ctx, cl); err == nil {
			code = resp.ErrorCode
		}
	}
	var answer *kerr.Error
	switch err = cmp.Or(err, kerr.ErrorForCode(code)); {
	case errors.Is(err, kerr.GroupAuthorizationFailed), errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return true, nil
	case err == nil, errors.As(err, &answer) && !errors.Is(err, kerr.SaslAuthenticationFailed):
		return false, nil
	}
	return false, fmt.Errorf("ask for the right to %s: %w", g.ResourceName(), err)
}
