// Package config has the settings of a waterclock process: one struct, its defaults, its layers and its rules.
//
//	loader := config.NewLoader(config.Default())
//	loader.AddFlags(fs, config.Client, config.Topics) // then parse the flags
//	cfg, err := loader.Load(os.Environ())             // every problem at once
//	err = cfg.Validate()
//
// Every setting has one name. By a mechanical rule --data-dir is the flag, data-dir: the YAML key and
// WATERCLOCK_DATA_DIR the environment variable; a flag wins over the environment, the environment over the file. An
// unknown name is an error in each layer, with the nearest known one. Secrets are never settings: a setting names the
// file that holds one.
//
// pflag parses every value in every layer, so each setting has one syntax. No library merges the layers. With koanf or
// viper a value carries no file and no line, and a problem could not name them; and "instance-id: 007" would become the
// number 7.
//
// The package does not know Kafka: the readers of a setting decide what it means there.
package config

import (
	"log/slog"
	"time"

	"github.com/waterclock/waterclock/internal/kit/memory"
)

// Config holds every setting. A field's comment names the setting if it is not simply the field's name in kebab case. A
// Config comes from [Default] or a [Loader] and is not changed after [Config.Validate].
type Config struct {
	// How to reach Kafka.
	Brokers          []string // host:port, at least one
	TLS              bool     // speak TLS to the brokers
	TLSCA            string   // tls-ca: PEM file of authorities; empty: the system's
	TLSCert          string   // tls-cert: PEM file of the client certificate, with TLSKey
	TLSKey           string   // tls-key: PEM file of its private key
	SASLMechanism    SASL     // sasl-mechanism
	SASLUsername     string   // sasl-username: user, or the AWS access key ID; empty with AWS: the role of the process
	SASLPasswordFile string   // sasl-password-file: password, or the AWS secret access key
	SASLTokenFile    string   // sasl-token-file: OAuth bearer token, or the AWS session token

	// Topics. An entry of Targets and DefaultTarget may be prefixed with a request topic and a colon, and then counts
	// for that topic alone; read them through PolicyOf.
	Requests            []string // request topics
	Delay               []DelayTopic
	Targets             []string // [topic:]glob as in path.Match; a target is denied unless one matches
	DefaultTarget       []string // [topic:]name for requests that name no target
	TargetRates         []TargetRate
	PartitionerCheck    Check // action for keys that are not on their murmur2 partition
	CreateTopics        bool  // create missing topics of the service
	ReplicationFactor   int   // of created topics: -1 (as the request topic) or 1 to 32767
	TopicCheckInterval  time.Duration
	AcceptGroup         bool          // start although there is another group's checkpoint
	AcceptLostChangelog bool          // start although the changelog was lost
	LimitHorizon        time.Duration // how far ahead a timer may be due, 1s to MaxHorizon
	LimitHeaders        int           // headers of a request, 1 to MaxHeaders
	LimitHeaderBytes    Size          // bytes of all headers of a request, 1 to MaxHeaderBytes
	Events              bool          // write the outcomes of timers to topics of their own
	// Tenants has the policies of request topics that have their own, by topic. Each is complete: the settings above
	// fill in those that the file leaves out. Only the file can set them. Read them through PolicyOf.
	Tenants map[string]Policy

	// The instance.
	Group         string // consumer group; its members share the work
	InstanceID    string // group.instance.id of static membership; empty: dynamic
	DataDir       string // directory of the local store
	HTTP          string // address of /metrics, /healthz, /readyz; empty: none
	HTTPWebConfig string // http-web-config: YAML file with TLS and users for HTTP; empty: plain and open
	Pprof         string // loopback address of the profiler; empty: none
	API           string // address of the HTTP API; empty: none
	Advertise     string // host:port that others reach API at; empty: as it is bound
	Console       bool   // pages for people at API
	// api-open: every caller that reaches API may do everything, because a proxy authenticates
	APIOpen bool
	APIHost []string // api-host: globs of host names that calls may be for; with APIOpen
	// api-users: YAML file of callers and their rights; empty: only this machine may call API
	APIUsers string
	// api-tls-cert: PEM file of the certificate of API, with APITLSKey; empty: plain HTTP
	APITLSCert string
	APITLSKey  string // api-tls-key: PEM file of its private key
	// api-client-ca: PEM file of the authorities of callers' certificates; needs APIUsers
	APIClientCA string
	APIKeyFile  string // api-key-file: file of the key that instances share, to forward calls
	// api-peers: globs of hosts that calls may be forwarded to; empty for any host that an instance of the group has
	// published
	APIPeers         []string
	APIBodyLimit     Size          // api-body-limit: bytes of a body, MinAPIBody to MaxAPIBody
	APIRate          int           // api-rate: calls a second of one caller; 0: no limit
	APIConcurrent    int           // api-concurrent: calls of one caller at a time, 1 to MaxAPIConcurrent
	APIAudit         string        // api-audit: AuditStderr, AuditOff, or a file
	SessionTimeout   time.Duration // time without a heartbeat after which the group drops a member
	RebalanceTimeout time.Duration // at least SessionTimeout
	OnStop           OnStop        // leave the group, or stay for a quick restart
	Standbys         int           // how many other instances keep a copy of each partition, up to MaxStandbys
	// how many loops of transactions there may be, up to MaxLanes; 0: chosen by the number of cores
	Lanes int
	// sub-partitions: planners of each partition, up to MaxSubPartitions; 0: chosen by cores and owned partitions
	SubPartitions    int
	TransactionalIDs int // transactional-ids: per lane, 2 to 4
	// least time between transactions of a lane, unless they are full: 0 to MaxFiringInterval
	FiringInterval     time.Duration
	TransactionTimeout time.Duration // at least 30s
	Tracing            Tracing
	// bytes that the process may use, within a tenth, at least MinMemory; 0: chosen by the available memory
	Memory Size

	// Logs.
	LogLevel  slog.Level
	LogFormat LogFormat

	// waterclock dev alone.
	Listen string // address of the embedded broker
	Demo   bool   // schedule a few timers at the start
}

// OnStop says what happens to the group membership at a clean stop.
type OnStop string

// The choices of on-stop.
const (
	Leave OnStop = "leave" // others take over immediately
	Stay  OnStop = "stay"  // the partitions wait for this instance; needs an instance ID
)

// Check is the action for a key that is not on its murmur2 partition.
type Check string

// The choices of partitioner-check.
const (
	CheckOff        Check = "off"
	CheckWarn       Check = "warn"
	CheckDeadLetter Check = "dead-letter"
)

// Values of api-audit that are not files.
const (
	AuditStderr = "stderr" // standard error, next to the log
	AuditOff    = "off"    // nowhere
)

// Tracing is the trace context that emissions carry.
type Tracing string

// The choices of tracing.
const (
	TracingOff  Tracing = "off"  // none
	TracingPass Tracing = "pass" // that of the request
	TracingLink Tracing = "link" // that of a span of the firing, which is linked to the request's; spans are exported
)

// LogFormat is how a log line is written.
type LogFormat string

// The choices of log-format.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// SASL is an authentication mechanism; empty is none.
type SASL string

// The choices of sasl-mechanism, by their registered names.
const (
	SASLNone     SASL = ""
	SASLPlain    SASL = "PLAIN"
	SASLScram256 SASL = "SCRAM-SHA-256"
	SASLScram512 SASL = "SCRAM-SHA-512"
	SASLOAuth    SASL = "OAUTHBEARER"
	SASLAWS      SASL = "AWS_MSK_IAM"
)

// Limits of the settings.
const (
	MinSessionTimeout     = time.Second // the broker's group.min.session.timeout.ms may ask for more
	MaxSessionTimeout     = 30 * time.Minute
	MaxRebalanceTimeout   = time.Hour
	MinTransactionTimeout = 30 * time.Second // a broker's death stalls writes for 8 to 10 s
	MaxTransactionTimeout = 15 * time.Minute // the broker's default transaction.max.timeout.ms
	MinTopicCheckInterval = time.Second
	MinTransactionalIDs   = 2
	MaxTransactionalIDs   = 4
	MaxLanes              = 256
	MaxSubPartitions      = 8
	MaxStandbys           = 3
	MaxFiringInterval     = time.Second
	MaxHorizon            = 36525 * 24 * time.Hour // 100 years
	MinDelay              = time.Millisecond
	MaxDelay              = 365 * 24 * time.Hour
	MaxHeaders            = 128
	MaxHeaderBytes        = 64 * KiB
	MinAPIBody            = 64 * KiB
	MaxAPIBody            = 1 * GiB
	MaxAPIRate            = 1_000_000
	MaxAPIConcurrent      = 100_000
	MinMemory             = Size(memory.Minimum)
)

// Default returns the default settings of serve. Brokers, Requests and Targets have no default.
func Default() Config {
	return Config{
		PartitionerCheck:   CheckWarn,
		CreateTopics:       true,
		ReplicationFactor:  -1,
		TopicCheckInterval: time.Hour,
		LimitHorizon:       MaxHorizon,
		LimitHeaders:       MaxHeaders,
		LimitHeaderBytes:   MaxHeaderBytes,

		Group:              "waterclock",
		DataDir:            "./waterclock-data",
		HTTP:               "127.0.0.1:8680",
		Console:            true,
		APIBodyLimit:       2 * MiB, // twice what a topic takes unless told otherwise
		APIConcurrent:      256,
		SessionTimeout:     10 * time.Second,
		RebalanceTimeout:   time.Minute,
		OnStop:             Leave,
		TransactionalIDs:   MaxTransactionalIDs,
		FiringInterval:     20 * time.Millisecond,
		TransactionTimeout: MinTransactionTimeout,
		Tracing:            TracingPass,

		LogLevel:  slog.LevelInfo,
		LogFormat: LogText,
		APIAudit:  AuditStderr,

		Listen: "127.0.0.1:9092",
		Demo:   true,
	}
}

// DefaultDev returns the settings of dev: those of serve for one request topic, timers, with every target allowed.
func DefaultDev() Config {
	c := Default()
	c.Memory = MinMemory // enough to try things out
	c.Requests = []string{"timers"}
	c.Targets = []string{"*"}
	c.DataDir = "./waterclock-dev"
	c.API = "127.0.0.1:8681"
	c.HTTP = "127.0.0.1:8682" // serve, which may be tried beside dev, has 8680
	c.APIAudit = AuditOff
	c.LogLevel = slog.LevelWarn // so that logs do not hide dev's output
	c.Events = true             // people who try things out want to see the outcomes
	return c
}
