// Package connect makes clients of a cluster from the settings: addresses, TLS and logins.
//
//	cl, err := connect.Open(ctx, cfg)
//	text := connect.Refusal(cfg, err) // why brokers reject this client, in one sentence
//
// It also knows which permission a client lacks.
package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/aws"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"github.com/twmb/franz-go/plugin/kslog"

	"github.com/waterclock/waterclock/internal/node/config"
	"github.com/waterclock/waterclock/internal/node/dialer"
)

const (
	// CommandTimeout bounds the requests of a command to a cluster.
	CommandTimeout = 30 * time.Second
	// commandID is the client ID of commands.
	commandID = "waterclock-cli"
)

// CommandOptions returns the options of a command's clients. Such a client logs nothing, because the command returns an
// error.
func CommandOptions(cfg *config.Config) ([]kgo.Opt, error) {
	return Options(cfg, commandID, slog.New(slog.DiscardHandler))
}

// Open returns the client of a command, with more options, once a broker has answered.
func Open(ctx context.Context, cfg *config.Config, more ...kgo.Opt) (*kgo.Client, error) {
	opts, err := CommandOptions(cfg)
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(
		append(append(opts, kgo.RetryTimeout(connectTimeout), kgo.UnknownTopicRetries(2)), more...)...)
	if err != nil {
		return nil, fmt.Errorf("build client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, CommandTimeout)
	defer cancel()
	if err = cl.Ping(ctx); err == nil {
		return cl, nil
	}
	cl.Close()
	if sentence := Refusal(cfg, err); sentence != "" {
		return nil, errors.New(sentence)
	}
	brokers := strings.Join(cfg.Brokers, ", ")
	if errors.Is(err, io.EOF) && cfg.SASLMechanism != config.SASLNone {
		return nil, fmt.Errorf(
			"the brokers at %s close the connection when %s begins: that port may want no login, or TLS; "+
				"or they are starting or stopping", brokers, cfg.SASLMechanism)
	}
	return nil, fmt.Errorf("no broker can be reached at %s: %w", brokers, err)
}

const (
	// connectTimeout bounds one try to reach a broker.
	connectTimeout = 5 * time.Second
	// dialTimeout bounds the opening of one connection, a TLS handshake included.
	dialTimeout = 4 * time.Second
	// MetadataMinAge is short because retries wait for fresh metadata.
	MetadataMinAge                   = 250 * time.Millisecond
	minRetryBackoff, maxRetryBackoff = 10 * time.Millisecond, 300 * time.Millisecond
	// requestRetries is how often a request is retried at most. Time limits end the retries sooner.
	requestRetries = 1000
	// transactionVersion is the level of the feature transaction.version at which brokers fence each transaction
	// separately (KIP-890, part 2).
	transactionVersion = 2
)

// Options returns the options that all clients have in common: brokers, identity and security.
func Options(cfg *config.Config, clientID string, log *slog.Logger) ([]kgo.Opt, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(cfg.Brokers...),
		kgo.ClientID(clientID),
		kgo.MetadataMinAge(MetadataMinAge),
		kgo.RetryBackoffFn(retryBackoff),
		kgo.RequestRetries(requestRetries),
		kgo.WithLogger(kslog.New(quiet(log))),
	}
	if cfg.TLS {
		if _, err := cfg.TLSConfig(); err != nil {
			return nil, err
		}
	}
	opts = append(opts, kgo.Dialer(Dial(cfg)))
	m, err := mechanism(cfg)
	if err != nil {
		return nil, err
	}
	if m != nil {
		opts = append(opts, kgo.SASL(m))
	}
	return opts, nil
}

// retryBackoff returns the pause after a number of failures. kgo's own pauses last up to 5 s. With those, one client
// would find the successor of a dead broker seconds after the others.
func retryBackoff(fails int) time.Duration {
	pause := min(minRetryBackoff<<min(fails, 10), maxRetryBackoff)
	return pause/2 + rand.N(pause/2)
}

// Dial returns a function that opens connections over TCP or TLS, within dialTimeout. The function reads the
// authorities and the client certificate again for each connection, so rotated files take effect without a restart.
func Dial(cfg *config.Config) dialer.Func {
	if !cfg.TLS {
		return (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		tc, err := cfg.TLSConfig()
		if err == nil {
			err = checkValidity(cfg.TLSCert, tc)
		}
		if err != nil {
			return nil, err
		}
		if tc.ServerName, _, err = net.SplitHostPort(addr); err != nil {
			return nil, fmt.Errorf("dial: %w", err)
		}
		return dialTLS(ctx, network, addr, tc)
	}
}

// mechanism returns how to log in; nil if there is no login. Each login reads the secrets again, so a rotated file
// takes effect without a restart. mechanism itself reads them once, so a missing file is noticed at the start.
func mechanism(cfg *config.Config) (sasl.Mechanism, error) {
	read := func(path string) (string, error) {
		if path == "" {
			return "", nil
		}
		s, err := config.ReadSecret(path)
		if err != nil {
			return "", &localError{err}
		}
		return s.Reveal(), nil
	}
	for _, path := range []string{cfg.SASLPasswordFile, cfg.SASLTokenFile} {
		if _, err := read(path); err != nil {
			return nil, err
		}
	}
	switch cfg.SASLMechanism {
	case config.SASLPlain:
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			pass, err := read(cfg.SASLPasswordFile)
			return plain.Auth{User: cfg.SASLUsername, Pass: pass}, err
		}), nil
	case config.SASLScram256, config.SASLScram512:
		method := scram.Sha512
		if cfg.SASLMechanism == config.SASLScram256 {
			method = scram.Sha256
		}
		return method(func(context.Context) (scram.Auth, error) {
			pass, err := read(cfg.SASLPasswordFile)
			return scram.Auth{User: cfg.SASLUsername, Pass: pass}, err
		}), nil
	case config.SASLOAuth:
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := read(cfg.SASLTokenFile)
			return oauth.Auth{Token: token}, err
		}), nil
	case config.SASLAWS:
		if cfg.SASLUsername == "" {
			return awsRole()
		}
		return aws.ManagedStreamingIAM(func(context.Context) (aws.Auth, error) {
			secret, err := read(cfg.SASLPasswordFile)
			if err != nil {
				return aws.Auth{}, err
			}
			token, err := read(cfg.SASLTokenFile)
			return aws.Auth{AccessKey: cfg.SASLUsername, SecretKey: secret, SessionToken: token}, err
		}), nil
	}
	return nil, nil
}

// UnfitError says why waterclock cannot run on a cluster.
type UnfitError struct{ msg string }

func (u *UnfitError) Error() string { return u.msg }

// CheckBrokers returns an error if no broker answers, and an UnfitError if the cluster is too old.
func CheckBrokers(ctx context.Context, cl *kgo.Client) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	resp, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	return fitTransactions(resp)
}

// fitTransactions returns an UnfitError if the level of transaction.version is too low.
func fitTransactions(resp *kmsg.ApiVersionsResponse) error {
	const feature = "transaction.version"
	var level, most int16
	for _, f := range resp.FinalizedFeatures {
		if f.Name == feature {
			level = f.MaxVersionLevel
		}
	}
	for _, f := range resp.SupportedFeatures {
		if f.Name == feature {
			most = f.MaxVersion
		}
	}
	advice := fmt.Sprintf("raise it with kafka-features.sh --bootstrap-server HOST:PORT upgrade --feature %s=%d",
		feature, transactionVersion)
	switch {
	case level >= transactionVersion:
		return nil
	case most < transactionVersion:
		advice = "these brokers have no such level, so they are older than Kafka 4.0, or a product without KIP-890 " +
			"(docs/DEPLOY.md has a list); upgrade them, or choose another cluster"
	}
	return &UnfitError{fmt.Sprintf("the cluster's %s is %d and must be %d (Kafka 4.0 or later): %s", feature, level,
		transactionVersion, advice)}
}

// quiet returns a log for the Kafka client that keeps only errors, unless log has level debug. While a broker is
// unreachable, the client would warn four times a second, and our own log says so once.
func quiet(log *slog.Logger) *slog.Logger {
	return slog.New(leveled{log.Handler()}).With("component", "kafka")
}

type leveled struct{ slog.Handler }

func (l leveled) Enabled(ctx context.Context, level slog.Level) bool {
	if l.Handler.Enabled(ctx, slog.LevelDebug) {
		return true
	}
	return level >= slog.LevelError && l.Handler.Enabled(ctx, level)
}

// saidByMembership is a log message of the Kafka client about an error that package membership logs too.
const loggedByMembership = "group manage loop errored"

// Handle implements slog.Handler.
func (l leveled) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == loggedByMembership && !l.Handler.Enabled(ctx, slog.LevelDebug) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

func (l leveled) WithAttrs(a []slog.Attr) slog.Handler { return leveled{l.Handler.WithAttrs(a)} }
func (l leveled) WithGroup(g string) slog.Handler      { return leveled{l.Handler.WithGroup(g)} }

// DevCluster is the ID of the embedded cluster of dev.
const DevCluster = "waterclock-dev"

// IsDev reports whether a client is one of the embedded cluster of dev.
func IsDev(ctx context.Context, cl *kgo.Client) (bool, error) {
	m, err := kadm.NewClient(cl).BrokerMetadata(ctx)
	return m.Cluster == DevCluster, err
}

// targetTimeout bounds the search for a target. The note is not worth a longer wait.
const targetTimeout = time.Second

// Offsets returns the offsets that a broker lists for one topic, by partition. It takes the results of kadm's calls.
func Offsets(listed kadm.ListedOffsets, err error) (map[int32]int64, error) {
	if err = cmp.Or(err, listed.Error()); err != nil {
		return nil, err
	}
	offsets := make(map[int32]int64)
	listed.Each(func(o kadm.ListedOffset) { offsets[o.Partition] = o.Offset })
	return offsets, nil
}

// MissingTarget returns a note if a topic does not exist. It returns "" if the topic exists, if that is unknown, or in
// dev, which creates topics on first use.
func MissingTarget(ctx context.Context, cl *kgo.Client, topic string) string {
	ctx, cancel := context.WithTimeout(ctx, targetTimeout)
	defer cancel()
	m, err := kadm.NewClient(cl).Metadata(ctx, topic)
	if err != nil || m.Cluster == DevCluster || !errors.Is(m.Topics[topic].Err, kerr.UnknownTopicOrPartition) {
		return ""
	}
	return fmt.Sprintf("topic %s does not exist now: create it before the timer is due, or it becomes a dead letter "+
		"then (target-unknown)", topic)
}

// awsRefresh is how long before they expire the credentials of a role are replaced.
const awsRefresh = 5 * time.Minute

// awsTimeout bounds one call of AWS. The SDK has no limit of its own, and all logins wait for the same call.
const awsTimeout = 5 * time.Second

// awsRole returns how to log in to Amazon MSK with the role that AWS gives this process: that of a Kubernetes service
// account (web identity, or EKS Pod Identity), of a container or of a machine. AWS's SDK finds it, as in every other
// program. All clients with the returned mechanism share the credentials. The SDK fetches them at the first login, and
// again at the first login after they are about to expire.
func awsRole() (sasl.Mechanism, error) {
	found, err := awsconfig.LoadDefaultConfig(context.Background(),
		awsconfig.WithHTTPClient(awshttp.NewBuildableClient().WithTimeout(awsTimeout)),
		awsconfig.WithCredentialsCacheOptions(func(o *awssdk.CredentialsCacheOptions) { o.ExpiryWindow = awsRefresh }))
	if err != nil {
		return nil, &localError{fmt.Errorf("the settings of AWS cannot be read: %w", innermost(err))}
	}
	return aws.ManagedStreamingIAM(func(ctx context.Context) (aws.Auth, error) {
		c, err := found.Credentials.Retrieve(ctx)
		if err != nil {
			return aws.Auth{}, &localError{noRole(err)}
		}
		return aws.Auth{AccessKey: c.AccessKeyID, SecretKey: c.SecretAccessKey, SessionToken: c.SessionToken}, nil
	}), nil
}

// noRole explains why there are no credentials of a role, and the fix.
func noRole(err error) error {
	role, agent := os.Getenv("AWS_ROLE_ARN"), os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
	source := "the role " + role
	switch {
	case role != "":
	case agent != "":
		source = "the agent at " + agent
	default:
		return fmt.Errorf("there are no AWS credentials for AWS_MSK_IAM: give the service account or the machine a "+
			"role, or set sasl-username and sasl-password-file (%w)", innermost(err))
	}
	if refused, ok := errors.AsType[smithy.APIError](err); ok {
		return fmt.Errorf("AWS refuses the credentials of %s (%s: %s): the role's trust policy has to name this "+
			"service account", source, refused.ErrorCode(), refused.ErrorMessage())
	}
	return fmt.Errorf("the AWS credentials of %s cannot be fetched: %w", source, innermost(err))
}

// innermost returns the cause of an error of AWS's SDK. Each layer of the SDK adds a text of its own.
func innermost(err error) error {
	if network, ok := errors.AsType[*net.OpError](err); ok { // it has the address
		return network
	}
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
