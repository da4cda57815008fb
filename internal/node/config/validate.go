package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/exporter-toolkit/web"

	"github.com/waterclock/waterclock/internal/kit/loopback"
	"github.com/waterclock/waterclock/internal/kit/span"
	"github.com/waterclock/waterclock/internal/timer"
)

// Validate returns every problem of the settings of an instance at once, joined, or nil. It opens the files that
// settings name, but those of the API's callers and keys, and nothing else.
func (c *Config) Validate() error {
	return c.check((*problems).client, (*problems).instance)
}

// ValidateDev is Validate for an instance with an embedded broker. It checks Listen and not Brokers.
func (c *Config) ValidateDev() error {
	return c.check((*problems).broker, (*problems).instance)
}

// ValidateClient is Validate for a client, which only needs to reach Kafka.
func (c *Config) ValidateClient() error {
	return c.check((*problems).client)
}

// ValidateTopics is Validate for commands that look after topics: how to reach Kafka, the request topics, and how the
// service's own topics are created.
func (c *Config) ValidateTopics() error {
	return c.check((*problems).client, (*problems).requests, (*problems).topics)
}

// ValidateACLs is Validate for the settings that rights depend on: how to reach Kafka, the
// request topics and their targets, and the group.
func (c *Config) ValidateACLs() error {
	return c.check((*problems).client, (*problems).requests, (*problems).targets, (*problems).group)
}

func (c *Config) check(parts ...func(*problems, *Config)) error {
	var p problems
	for _, part := range parts {
		part(&p, c)
	}
	return errors.Join(p...)
}

// problems collects the problems of a configuration. Each method except want checks a part of it.
type problems []error

// want adds a problem unless ok.
func (p *problems) want(ok bool, setting string, found any, need string) {
	if !ok {
		*p = append(*p, &Problem{Setting: setting, Found: show(found), Need: need})
	}
}

// needs adds a problem if a setting is set, unless ok.
func (p *problems) needs(setting, found string, ok bool, need string) {
	p.want(found == "" || ok, setting, found, need)
}

// between wants lo <= v <= hi.
func between[T int | Size | time.Duration](p *problems, setting string, v, lo, hi T) {
	p.want(v >= lo && v <= hi, setting, v, show(lo)+" to "+show(hi))
}

func show(v any) string {
	if d, ok := v.(time.Duration); ok {
		return span.String(d)
	}
	return fmt.Sprint(v)
}

func (p *problems) client(c *Config) {
	p.want(len(c.Brokers) > 0, "brokers", "", "at least one host:port, as in 127.0.0.1:9092")
	for _, b := range c.Brokers {
		p.want(isAddress(b, true), "brokers", b, "host:port for each broker")
	}
	p.tls(c)
	p.sasl(c)
}

// broker checks the embedded broker.
func (p *problems) broker(c *Config) {
	p.want(isAddress(c.Listen, false), "listen", c.Listen, "host:port")
	p.want(!c.TLS, "tls", c.TLS, "to be unset: the embedded broker speaks plain text")
	p.want(c.SASLMechanism == SASLNone, "sasl-mechanism", c.SASLMechanism,
		"to be unset: the embedded broker knows no users")
	p.want(len(c.Requests) > 0, "requests", "", "at least one request topic, as in timers")
}

func (p *problems) instance(c *Config) {
	p.requests(c)
	p.targets(c)
	p.topics(c)
	p.member(c)
	p.resources(c)
	p.api(c)
}

func (p *problems) requests(c *Config) {
	p.want(len(c.Requests) > 0 || len(c.Delay) > 0, "requests", "",
		"at least one request topic, as in timers, or delay a fixed-delay topic")
	for i, t := range c.Requests {
		p.want(timer.ValidTopicName(t) && len(t) <= maxRequestTopic, "requests", t,
			fmt.Sprintf("topic names: 1 to %d of letters, digits, dot, underscore and hyphen", maxRequestTopic))
		p.want(!isReserved(t), "requests", t, "topics that neither begin with __ nor belong to the service")
		p.want(!slices.Contains(c.Requests[:i], t), "requests", t, "each topic once")
	}
	p.tenants(c)
	p.delay(c)
}

func (p *problems) delay(c *Config) {
	for i, d := range c.Delay {
		p.want(timer.ValidTopicName(d.Topic) && len(d.Topic) <= maxRequestTopic && !isReserved(d.Topic),
			delaySetting, d,
			fmt.Sprintf("topic names: 1 to %d of letters, digits, dot, underscore and hyphen, that neither begin "+
				"with __ nor belong to the service", maxRequestTopic))
		p.want(!slices.Contains(c.Requests, d.Topic) && !slices.Contains(c.DelayTopics()[:i], d.Topic), delaySetting, d,
			"each topic once, and none of the request topics")
		p.want(d.Delay >= MinDelay && d.Delay <= MaxDelay && d.Delay%time.Millisecond == 0, delaySetting, d,
			"delays of whole milliseconds, "+show(MinDelay)+" to "+show(MaxDelay))
		if d.Target != "" {
			p.want(timer.ValidTopicName(d.Target), delaySetting, d, "the name of a topic as target")
			p.want(!c.neverTarget(d.Target) && !slices.Contains(c.DelayTopics(), d.Target), delaySetting, d,
				"a target that neither begins with __ nor belongs to the service nor is a request topic or a "+
					"fixed-delay topic")
		}
	}
}

func (p *problems) targets(c *Config) {
	// If each tenant has its own targets, none for all are needed.
	common := slices.ContainsFunc(c.Requests, func(t string) bool { _, ok := c.Tenants[t]; return !ok })
	p.want(len(c.Targets) > 0 || !common && len(c.Requests) > 0, "targets", "",
		"at least one glob, as in orders or mail.*; * allows every topic")
	for _, t := range c.Targets {
		topic, glob := splitTopic(t)
		p.want(isGlob(glob), "targets", t, "globs as in orders, mail.* or team-?.events")
		p.want(!c.neverTarget(glob), "targets", t, neverTargets)
		p.want(c.serves(topic), "targets", t, "a prefix that is one of the request topics or fixed-delay topics")
	}
	p.rates(c, ratesSetting, c.TargetRates, func(t string) bool { return t == "" || slices.Contains(c.Requests, t) },
		"one of the request topics")
	seen := map[string]bool{}
	for _, t := range c.DefaultTarget {
		topic, name := splitTopic(t)
		p.want(timer.ValidTopicName(name), "default-target", t, "the name of a topic")
		p.want(!c.neverTarget(name), "default-target", t, neverTargets)
		p.want(topic == "" || slices.Contains(c.Requests, topic), "default-target", t,
			"a prefix that is one of the request topics")
		p.want(!seen[topic], "default-target", t, "one entry for each request topic")
		seen[topic] = true
	}
	for _, d := range c.Delay {
		policy := c.PolicyOf(d.Topic)
		p.want(d.Target == "" || policy.Allows(d.Target), delaySetting, d,
			"a target that is one of the targets of "+d.Topic)
	}
	for _, topic := range c.Requests {
		if _, ok := c.Tenants[topic]; ok {
			continue // checked below
		}
		policy := c.PolicyOf(topic)
		name := policy.DefaultTarget
		p.want(name == "" || policy.Allows(name), "default-target", name, "to be one of the targets of "+topic)
	}
	for _, topic := range sortedKeys(c.Tenants) {
		t := c.Tenants[topic]
		p.policy(c, topic, &t)
	}
}

func isGlob(glob string) bool {
	_, err := path.Match(glob, "")
	return err == nil && glob != ""
}

// neverTargets is the requirement for every target. An emission has no timer- headers, so on a request topic it would
// be a dead letter or a cancel.
const neverTargets = "topics that neither begin with __ nor belong to the service nor are request topics nor hold " +
	"dead letters: no timer may fire there"

// neverTarget reports whether no timer may fire to a topic of that name. A glob may match such topics, but requests
// that name them are rejected.
func (c *Config) neverTarget(name string) bool {
	return isReserved(name) || slices.Contains(c.Requests, name) || c.IsDeadLetters(name)
}

// serves reports whether the prefix of a target is empty, or a topic that is served.
func (c *Config) serves(topic string) bool {
	return topic == "" || slices.Contains(c.Requests, topic) || slices.Contains(c.DelayTopics(), topic)
}

func (p *problems) topics(c *Config) {
	p.want(c.ReplicationFactor == -1 || c.ReplicationFactor >= 1 && c.ReplicationFactor <= 32767,
		"replication-factor", c.ReplicationFactor, "-1 or 1 to 32767")
	p.want(c.TopicCheckInterval >= MinTopicCheckInterval, "topic-check-interval", c.TopicCheckInterval,
		"at least "+show(MinTopicCheckInterval))
	between(p, "limit-horizon", c.LimitHorizon, time.Second, MaxHorizon)
	between(p, "limit-headers", c.LimitHeaders, 1, MaxHeaders)
	between(p, "limit-header-bytes", c.LimitHeaderBytes, 1, MaxHeaderBytes)
}

func (p *problems) group(c *Config) { p.want(c.Group != "", "group", "", "a name") }

func (p *problems) member(c *Config) {
	p.group(c)
	// Kafka's rule for a group.instance.id is that for topics.
	p.needs("instance-id", c.InstanceID, timer.ValidTopicName(c.InstanceID),
		"1 to 249 letters, digits, dots, underscores and hyphens")
	between(p, "session-timeout", c.SessionTimeout, MinSessionTimeout, MaxSessionTimeout)
	// Otherwise a static member could miss a generation without being dropped.
	p.want(c.RebalanceTimeout >= c.SessionTimeout && c.RebalanceTimeout <= MaxRebalanceTimeout,
		"rebalance-timeout", c.RebalanceTimeout,
		fmt.Sprintf("at least session-timeout (%s) and at most %s", show(c.SessionTimeout), show(MaxRebalanceTimeout)))
	p.want(c.OnStop != Stay || c.InstanceID != "", "on-stop", c.OnStop, "an instance-id with it, or to be leave")
}

func (p *problems) resources(c *Config) {
	p.want(c.DataDir != "", "data-dir", "", "a directory")
	p.needs("http", c.HTTP, isAddress(c.HTTP, false), "host:port, or to be empty")
	p.needs("http-web-config", c.HTTPWebConfig, c.HTTP != "", "http to be set")
	if c.HTTPWebConfig != "" {
		err := web.Validate(c.HTTPWebConfig)
		p.want(err == nil, "http-web-config", c.HTTPWebConfig,
			fmt.Sprintf("a web configuration as Prometheus exporters have: %v", err))
	}
	p.needs("pprof", c.Pprof, isAddress(c.Pprof, false) && loopback.Is(c.Pprof),
		"host:port on the loopback interface (127.0.0.1, [::1] or localhost), or to be empty")
	between(p, "standbys", c.Standbys, 0, MaxStandbys)
	between(p, "lanes", c.Lanes, 0, MaxLanes)
	between(p, "sub-partitions", c.SubPartitions, 0, MaxSubPartitions)
	between(p, "transactional-ids", c.TransactionalIDs, MinTransactionalIDs, MaxTransactionalIDs)
	between(p, "firing-interval", c.FiringInterval, 0, MaxFiringInterval)
	between(p, "transaction-timeout", c.TransactionTimeout, MinTransactionTimeout, MaxTransactionTimeout)
	p.want(c.Memory == 0 || c.Memory >= MinMemory, "memory", c.Memory, "at least "+show(MinMemory)+
		", or 0 to have it chosen")
}

func (p *problems) tls(c *Config) {
	p.needs("tls-ca", c.TLSCA, c.TLS, "tls to be true")
	p.needs("tls-cert", c.TLSCert, c.TLS, "tls to be true")
	p.needs("tls-key", c.TLSKey, c.TLS, "tls to be true")
	p.want((c.TLSCert == "") == (c.TLSKey == ""), "tls-cert", c.TLSCert, "tls-key with it, and the other way round")
	if _, err := c.TLSConfig(); err != nil && (c.TLSCert == "") == (c.TLSKey == "") {
		p.want(false, "tls", "true", fmt.Sprintf("PEM files that can be read: %v", err))
	}
}

// sasl checks the settings that a mechanism needs, or that it does not take.
func (p *problems) sasl(c *Config) {
	by := " with sasl-mechanism " + string(c.SASLMechanism)
	if c.SASLMechanism == SASLNone {
		by = " without sasl-mechanism"
	}
	user := slices.Contains([]SASL{SASLPlain, SASLScram256, SASLScram512}, c.SASLMechanism)
	if c.SASLMechanism == SASLAWS { // without a key it is the role of the process
		user = c.SASLUsername != "" || c.SASLPasswordFile != "" || c.SASLTokenFile != ""
	}
	p.want(user == (c.SASLUsername != ""), "sasl-username", c.SASLUsername, setOrNot(user)+by)
	p.want(user == (c.SASLPasswordFile != ""), "sasl-password-file", c.SASLPasswordFile, setOrNot(user)+by)
	if c.SASLMechanism != SASLAWS { // its session token is optional
		token := c.SASLMechanism == SASLOAuth
		p.want(token == (c.SASLTokenFile != ""), "sasl-token-file", c.SASLTokenFile, setOrNot(token)+by)
	}
	p.want(c.SASLMechanism != SASLAWS || c.TLS, "tls", c.TLS, "to be true"+by)
	for _, f := range []struct{ setting, file string }{
		{"sasl-password-file", c.SASLPasswordFile}, {"sasl-token-file", c.SASLTokenFile},
	} {
		if f.file != "" {
			_, err := ReadSecret(f.file)
			p.want(err == nil, f.setting, f.file, fmt.Sprintf("a file with the secret: %v", err))
		}
	}
}

func setOrNot(needed bool) string {
	if needed {
		return "to be set"
	}
	return "to be unset"
}

const (
	// maxRequestTopic leaves room for the longest derived name.
	maxRequestTopic = timer.MaxTopicNameBytes - len(ownInfix+"dead-letters")
	// ownInfix is part of the name of every topic of the service.
	ownInfix = ".waterclock."
)

// isReserved reports whether a topic is Kafka's own or the service's.
func isReserved(topic string) bool {
	if strings.HasPrefix(topic, "__") {
		return true
	}
	i := strings.LastIndex(topic, ownInfix)
	return i >= 0 && slices.Contains([]string{"changelog", "dead-letters", "events", "checkpoints"},
		topic[i+len(ownInfix):])
}

// isAddress reports whether s is host:port with a number as port. A remote address needs a host and a port other than
// 0.
func isAddress(s string, remote bool) bool {
	host, port, err := net.SplitHostPort(s)
	n, portErr := strconv.ParseUint(port, 10, 16)
	return err == nil && portErr == nil && (!remote || host != "" && n > 0)
}

// api checks that the API is not open by accident.
func (p *problems) api(c *Config) {
	p.needs("api", c.API, isAddress(c.API, false), "host:port, or to be empty")
	p.needs("api", c.API, !isAddress(c.API, false) || c.APIOpen || c.APIUsers != "" || loopback.Is(c.API),
		"api-users with its callers, or api-open if a proxy authenticates and nothing else can reach it, or the "+
			"loopback interface (127.0.0.1, [::1] or localhost)")
	p.needs("advertise", c.Advertise, isAddress(c.Advertise, true), "host:port with the port that others reach api at")
	p.needs("advertise", c.Advertise, c.API != "", "api to be set")
	p.want(!c.APIOpen || c.APIUsers == "", "api-open", c.APIOpen, "to be false if api-users is set")
	p.want(!c.APIOpen || c.API != "", "api-open", c.APIOpen, "api to be set")
	p.needs("api-tls-cert", c.APITLSCert, c.APITLSKey != "", "api-tls-key with it")
	p.needs("api-tls-key", c.APITLSKey, c.APITLSCert != "", "api-tls-cert with it")
	p.needs("api-client-ca", c.APIClientCA, c.APITLSCert != "", "api-tls-cert with it")
	p.needs("api-client-ca", c.APIClientCA, c.APIUsers != "",
		"api-users with it, to name the callers that have certificates")
	p.hosts("api-peers", c.APIPeers, "*.timers.svc or 10.0.0.*")
	p.hosts("api-host", c.APIHost, "timers.example.org or *.timers.svc")
	p.needs("api-host", strings.Join(c.APIHost, ","), c.APIOpen,
		"api-open with it: with api-users every host name is answered, and the loopback interface has its own names")
	p.needs("api-peers", strings.Join(c.APIPeers, ","), c.APIKeyFile != "",
		"api-key-file: without it nothing is forwarded")
	p.needs("api-users", c.APIUsers, c.API != "", "api to be set")
	p.needs("api-key-file", c.APIKeyFile, c.API != "", "api to be set")
	p.file("api-tls-cert", c.APITLSCert, c, "PEM files of a certificate and its key", func() error {
		if c.APITLSKey == "" {
			return nil // reported above
		}
		_, err := tls.LoadX509KeyPair(c.APITLSCert, c.APITLSKey)
		return err
	})
	p.file("api-client-ca", c.APIClientCA, c, "a PEM file of authorities", func() error {
		_, err := readCA(c.APIClientCA)
		return err
	})
	between(p, "api-body-limit", c.APIBodyLimit, MinAPIBody, MaxAPIBody)
	between(p, "api-rate", c.APIRate, 0, MaxAPIRate)
	p.want(c.APIAudit != "", "api-audit", c.APIAudit, "stderr, off, or the path of a file")
	between(p, "api-concurrent", c.APIConcurrent, 1, MaxAPIConcurrent)
}

// hosts checks globs of hosts.
func (p *problems) hosts(setting string, globs []string, examples string) {
	for _, glob := range globs {
		_, err := path.Match(glob, "")
		p.want(err == nil && glob != "" && !strings.ContainsAny(glob, ":/"), setting, glob,
			"globs of hosts as in "+examples+", without scheme and port")
	}
}

// file checks a file of the API's TLS. apiserver.Validate checks those of callers and of keys, because it reads them.
func (p *problems) file(setting, path string, c *Config, need string, check func() error) {
	if path == "" {
		return
	}
	p.want(c.API != "", setting, path, "api to be set")
	if err := check(); err != nil {
		p.want(false, setting, path, fmt.Sprintf("%s: %v", need, Pathless(err)))
	}
}
