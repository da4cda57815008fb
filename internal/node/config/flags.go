package config

import "github.com/spf13/pflag"

// Group is a part of the settings: the flags that a sub-command offers.
type Group int

// The groups of settings.
const (
	Client   Group = iota // reaching Kafka
	Topics                // request topics, targets, the service's own topics
	Instance              // this process as a member
	Log                   // logs
	DevOnly               // the embedded broker of waterclock dev
	groups                // how many there are
)

// delaySetting is the one setting whose entries have fields.
const delaySetting = "delay"

// bind declares the settings of one group on fs. The help shows the values of c as defaults. This is the only table of
// names.
func (c *Config) bind(g Group, fs *pflag.FlagSet) {
	switch g {
	case Client:
		bindClient(c, fs)
	case Topics:
		bindTopics(c, fs)
	case Instance:
		bindInstance(c, fs)
	case Log:
		fs.Var((*level)(&c.LogLevel), "log-level", "least severe `LEVEL` to log: debug, info, warn or error")
		fs.Var(choice[LogFormat]{&c.LogFormat, []LogFormat{LogText, LogJSON}}, "log-format",
			"`FORMAT` of log lines: text or json")
	case DevOnly:
		fs.StringVar(&c.Listen, "listen", c.Listen, "`ADDRESS` of the embedded broker, host:port")
		fs.BoolVar(&c.Demo, "demo", c.Demo, "schedule a few timers at the start")
	}
}

// flags returns the settings of an instance, as flagsOf does.
func (c *Config) flags() *pflag.FlagSet { return c.flagsOf(Client, Topics, Instance, Log) }

// flagsOf returns the settings of some groups with their values, in the order of the table.
func (c *Config) flagsOf(groups ...Group) *pflag.FlagSet {
	shown := *c // the flags can change it
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SortFlags = false
	for _, g := range groups {
		shown.bind(g, fs)
	}
	return fs
}

func bindClient(c *Config, fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.Brokers, "brokers", c.Brokers, "brokers to ask first: `HOST:PORT,...`")
	fs.BoolVar(&c.TLS, "tls", c.TLS, "speak TLS to the brokers")
	fs.StringVar(&c.TLSCA, "tls-ca", c.TLSCA, "PEM `FILE` of trusted authorities (default: the system's)")
	fs.StringVar(&c.TLSCert, "tls-cert", c.TLSCert, "PEM `FILE` of the client certificate, with --tls-key")
	fs.StringVar(&c.TLSKey, "tls-key", c.TLSKey, "PEM `FILE` of the client certificate's private key")
	fs.Var(choice[SASL]{&c.SASLMechanism, []SASL{SASLNone, SASLPlain, SASLScram256, SASLScram512, SASLOAuth, SASLAWS}},
		"sasl-mechanism",
		"authenticate by `NAME`: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM")
	fs.StringVar(&c.SASLUsername, "sasl-username", c.SASLUsername,
		"user `NAME`; for AWS_MSK_IAM the access key ID, or empty for the role that AWS gives this process")
	fs.StringVar(&c.SASLPasswordFile, "sasl-password-file", c.SASLPasswordFile,
		"`FILE` that holds the password; for AWS_MSK_IAM the secret access key")
	fs.StringVar(&c.SASLTokenFile, "sasl-token-file", c.SASLTokenFile,
		"`FILE` that holds the OAUTHBEARER token, read again at each login; for AWS_MSK_IAM the session token")
}

func bindTopics(c *Config, fs *pflag.FlagSet) {
	fs.StringSliceVar(&c.Requests, "requests", c.Requests, "request topics to serve: `TOPIC,...`")
	fs.Var(delayEntries(&c.Delay), delaySetting,
		"fixed-delay topics to serve: `TOPIC:DURATION:TARGET,...`; records appear on the target that long after "+
			"their timestamps; without :TARGET each record must name its target")
	fs.StringSliceVar(&c.Targets, "targets", c.Targets,
		"target topics that requests may name: `GLOB,...`, or TOPIC:GLOB for one request or fixed-delay topic; "+
			"others are rejected")
	fs.StringSliceVar(&c.DefaultTarget, "default-target", c.DefaultTarget,
		"target of requests that name none: `TOPIC`, or REQUEST-TOPIC:TOPIC,...")
	fs.Var(rateEntries(&c.TargetRates), ratesSetting,
		"fire to each target topic at most that often, over all instances: `GLOB=N/s,...`, with /m or /h for a minute "+
			"or an hour; GLOB=N/s:BURST for another burst than a second's worth; TOPIC:GLOB=N/s counts one request "+
			"topic alone; the first that matches counts, and what waits is deferred")
	fs.Var(choice[Check]{&c.PartitionerCheck, []Check{CheckOff, CheckWarn, CheckDeadLetter}}, "partitioner-check",
		"`ACTION` for a key that is not on its murmur2 partition: off, warn or dead-letter")
	fs.BoolVar(&c.CreateTopics, "create-topics", c.CreateTopics, "create missing topics of the service")
	fs.IntVar(&c.ReplicationFactor, "replication-factor", c.ReplicationFactor,
		"create topics with `N` replicas; -1 for as many as the request topic has")
	fs.Var((*duration)(&c.TopicCheckInterval), "topic-check-interval",
		"check the topics' settings again every `DURATION`")
	fs.BoolVar(&c.AcceptGroup, "accept-group", c.AcceptGroup,
		"take over topics that another group has served; instances of that group that still run fail")
	fs.BoolVar(&c.AcceptLostChangelog, "accept-lost-changelog", c.AcceptLostChangelog,
		"the changelog is lost and no data directory has it (try topics follow --restore first): read the request "+
			"log from its start, so that timers that have fired fire again; for a fixed-delay topic, continue from "+
			"the group's offset")
	fs.Var((*duration)(&c.LimitHorizon), "limit-horizon", "refuse timers due later than `DURATION` ahead")
	fs.IntVar(&c.LimitHeaders, "limit-headers", c.LimitHeaders, "refuse requests with more than `N` headers")
	fs.Var(&c.LimitHeaderBytes, "limit-header-bytes", "refuse requests whose headers take more than `SIZE`")
	fs.BoolVar(&c.Events, "events", c.Events,
		"write the outcomes of timers to REQUEST-TOPIC.waterclock.events, for waterclock watch, histories and audits")
}

func bindInstance(c *Config, fs *pflag.FlagSet) {
	fs.StringVar(&c.Group, "group", c.Group, "consumer group `NAME`; instances of one group share the work")
	fs.StringVar(&c.InstanceID, "instance-id", c.InstanceID,
		"`NAME` of this instance, kept over restarts, for static membership (default: none)")
	fs.StringVar(&c.DataDir, "data-dir", c.DataDir,
		"`DIRECTORY` of the local store; it can be deleted, which costs a replay")
	fs.StringVar(&c.HTTP, "http", c.HTTP, "`ADDRESS` for /metrics, /healthz and /readyz, host:port; empty for none")
	fs.StringVar(&c.HTTPWebConfig, "http-web-config", c.HTTPWebConfig,
		"YAML `FILE` with TLS and users for --http, in the format of Prometheus exporters; empty for plain HTTP "+
			"without users")
	fs.StringVar(&c.Pprof, "pprof", c.Pprof, "loopback `ADDRESS` for /debug/pprof/, host:port; empty for none")
	bindAPI(c, fs)
	fs.Var((*duration)(&c.SessionTimeout), "session-timeout",
		"the group drops an instance that has not answered for `DURATION`")
	fs.Var((*duration)(&c.RebalanceTimeout), "rebalance-timeout",
		"instances have `DURATION` to join a rebalance; at least the session timeout")
	fs.Var(choice[OnStop]{&c.OnStop, []OnStop{Leave, Stay}}, "on-stop",
		"`ACTION` at a stop: leave the group, or stay in it until the session times out (needs --instance-id)")
	fs.IntVar(&c.Standbys, "standbys", c.Standbys, "`N` other instances, up to 3, keep a copy of each partition, "+
		"and can take it over without a replay; 0 for none")
	fs.IntVar(&c.Lanes, "lanes", c.Lanes,
		"run up to `N` loops of transactions in parallel, more only if those are full; 0 chooses by cores")
	fs.IntVar(&c.SubPartitions, "sub-partitions", c.SubPartitions,
		"plan the timers of each partition in `N` parallel parts, up to 8; 0 chooses by cores and partitions")
	fs.IntVar(&c.TransactionalIDs, "transactional-ids", c.TransactionalIDs,
		"each lane has `N` transactional IDs, 2 to 4")
	fs.Var((*duration)(&c.FiringInterval), "firing-interval",
		"a lane begins a transaction at most once in `DURATION`, unless it is full: timers fire up to that much "+
			"later, and cost less; 0 for as soon as possible")
	fs.Var((*duration)(&c.TransactionTimeout), "transaction-timeout",
		"the broker aborts a transaction open for `DURATION`; at least 30s")
	fs.Var(&c.Memory, "memory", "use `SIZE` of memory in all, 256MiB or more; 0 chooses a quarter of what the "+
		"cgroup or the machine has, up to 4GiB")
	fs.Var(choice[Tracing]{&c.Tracing, []Tracing{TracingOff, TracingPass, TracingLink}}, "tracing",
		"`MODE` of the trace context of emissions: off for none, pass for the request's, link for a trace of each "+
			"firing, which is exported as the OTEL_ variables say")
}

func bindAPI(c *Config, fs *pflag.FlagSet) {
	fs.StringVar(&c.API, "api", c.API, "`ADDRESS` of the HTTP API, host:port; empty for none")
	fs.StringVar(&c.Advertise, "advertise", c.Advertise, "`ADDRESS` at which other instances reach --api, host:port "+
		"(default: the one that it listens on, or the host's name)")
	fs.BoolVar(&c.Console, "console", c.Console, "also serve the console, pages for people, at --api")
	fs.BoolVar(&c.APIOpen, "api-open", c.APIOpen,
		"every caller that reaches --api may do everything, because a proxy in front of it authenticates")
	fs.StringSliceVar(&c.APIHost, "api-host", c.APIHost,
		"host names under which --api-open answers: `GLOB,...`, "+
			"besides localhost, IP addresses and the advertised name")
	fs.StringVar(&c.APIUsers, "api-users", c.APIUsers,
		"YAML `FILE` with the callers of --api and their rights (default: only this machine may call it, and may do "+
			"everything)")
	fs.StringVar(&c.APITLSCert, "api-tls-cert", c.APITLSCert,
		"PEM `FILE` of the certificate of --api, with --api-tls-key; empty for plain HTTP")
	fs.StringVar(&c.APITLSKey, "api-tls-key", c.APITLSKey, "PEM `FILE` of the private key of --api")
	fs.StringVar(&c.APIClientCA, "api-client-ca", c.APIClientCA,
		"PEM `FILE` of the authorities of client certificates that --api-users names")
	fs.StringVar(&c.APIKeyFile, "api-key-file", c.APIKeyFile,
		"`FILE` with the key that the instances share, to forward calls to each other")
	fs.StringSliceVar(&c.APIPeers, "api-peers", c.APIPeers,
		"hosts that calls may be forwarded to: `GLOB,...`; empty for all that instances publish")
	fs.Var(&c.APIBodyLimit, "api-body-limit", "reject calls of --api whose body takes more than `SIZE`")
	fs.IntVar(&c.APIRate, "api-rate", c.APIRate, "each caller may make `N` calls a second; 0 for no limit")
	fs.IntVar(&c.APIConcurrent, "api-concurrent", c.APIConcurrent, "each caller may have `N` calls in progress")
	fs.StringVar(&c.APIAudit, "api-audit", c.APIAudit,
		"log calls of --api that change something to `FILE`, or to stderr, whatever --log-level is; or off")
}
