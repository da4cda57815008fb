package connect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/topics"
)

// ACLServer is how kafka-acls.sh reaches cfg's cluster.
func ACLServer(cfg *config.Config) string {
	server := "--bootstrap-server " + strings.Join(cfg.Brokers, ",")
	if cfg.TLS || cfg.SASLMechanism != config.SASLNone {
		server += " --command-config admin.properties"
	}
	return server
}

// Missing returns the sentence for a right that the brokers do not grant, with the command that grants it.
func Missing(cfg *config.Config, g topics.Grant) string {
	return g.Missing(ACLServer(cfg), Principal(cfg))
}

// MissingTopics returns those of the grants for single topics, or their parts,
// that the client does not have. What is said of a prefix cannot be asked for.
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

// TopicRights is what the broker says to a client about a topic.
type TopicRights struct {
	Absent  bool // there is no such topic
	Refused bool // the client may not even know whether there is
	May     []kmsg.ACLOperation
}

// AskTopics sends the request itself: kadm makes one topic that may not be
// described an error of them all.
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
	return rights, askSettings(ctx, cl, rights)
}

// askSettings asks for what a topic that may not be described does not tell: of
// all rights it is DescribeConfigs alone that one can have nevertheless.
func askSettings(ctx context.Context, cl *kgo.Client, rights map[string]TopicRights) error {
	req := kmsg.NewPtrDescribeConfigsRequest()
	for name, r := range rights {
		if r.Refused {
			t := kmsg.NewDescribeConfigsRequestResource()
			t.ResourceType, t.ResourceName, t.ConfigNames = kmsg.ConfigResourceTypeTopic, name, []string{"cleanup.policy"}
			req.Resources = append(req.Resources, t)
		}
	}
	if len(req.Resources) == 0 {
		return nil
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("ask for the rights to settings of topics: %w", err)
	}
	for _, t := range resp.Resources {
		if !errors.Is(kerr.ErrorForCode(t.ErrorCode), kerr.TopicAuthorizationFailed) {
			r := rights[t.ResourceName]
			r.May = []kmsg.ACLOperation{kmsg.ACLOperationDescribeConfigs}
			rights[t.ResourceName] = r
		}
	}
	return nil
}

// LacksGroup asks by the heartbeat of a member that does not exist.
func LacksGroup(ctx context.Context, cl *kgo.Client, group string) (bool, error) {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID = group, "waterclock-rights"
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	return denied(err, kerr.GroupAuthorizationFailed, "ask for the right to the group")
}

// LacksTransactions asks by the end of a transaction that does not exist.
func LacksTransactions(ctx context.Context, cl *kgo.Client, id string) (bool, error) {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.Commit = id, false
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	return denied(err, kerr.TransactionalIDAuthorizationFailed, "ask for the right to transactional IDs")
}

// denied reports whether a probe was refused for want of a right. Any other
// answer of the broker means that the right is there.
func denied(err, want error, doing string) (bool, error) {
	var answer *kerr.Error
	switch {
	case errors.Is(err, want):
		return true, nil
	case err == nil, errors.As(err, &answer) && !errors.Is(err, kerr.SaslAuthenticationFailed):
		return false, nil
	}
	return false, fmt.Errorf("%s: %w", doing, err)
}
