package config

import (
	"crypto/tls"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/api/access"
)

// api checks that the API is not open by accident.
func (p *problems) api(c *Config) {
	p.want(c.API == "" || isAddress(c.API, false), "api", c.API, "host:port, or to be empty")
	p.want(c.API == "" || !isAddress(c.API, false) || c.APIOpen || c.APIUsers != "" || access.IsLoopback(c.API),
		"api", c.API,
		"api-users with its callers, or api-open if a proxy authenticates and nothing else can reach it, or the "+
			"loopback interface (127.0.0.1, [::1] or localhost)")
	p.want(c.Advertise == "" || isAddress(c.Advertise, true), "advertise", c.Advertise,
		"host:port with the port that others reach api at")
	p.want(c.Advertise == "" || c.API != "", "advertise", c.Advertise, "api to be set")
	p.want(!c.APIOpen || c.APIUsers == "", "api-open", c.APIOpen, "to be false if api-users is set")
	p.want(!c.APIOpen || c.API != "", "api-open", c.APIOpen, "api to be set")
	p.want(c.APITLSCert == "" || c.APITLSKey != "", "api-tls-cert", c.APITLSCert, "api-tls-key with it")
	p.want(c.APITLSKey == "" || c.APITLSCert != "", "api-tls-key", c.APITLSKey, "api-tls-cert with it")
	p.want(c.APIClientCA == "" || c.APITLSCert != "", "api-client-ca", c.APIClientCA, "api-tls-cert with it")
	p.want(c.APIClientCA == "" || c.APIUsers != "", "api-client-ca", c.APIClientCA,
		"api-users with it, to name the callers that have certificates")
	p.hosts("api-peers", c.APIPeers, "*.timers.svc or 10.0.0.*")
	p.hosts("api-host", c.APIHost, "timers.example.org or *.timers.svc")
	p.want(len(c.APIHost) == 0 || c.APIOpen, "api-host", strings.Join(c.APIHost, ","),
		"api-open with it: with api-users every host name is answered, and the loopback interface has its own names")
	p.want(len(c.APIPeers) == 0 || c.APIKeyFile != "", "api-peers", strings.Join(c.APIPeers, ","),
		"api-key-file: without it nothing is forwarded")
	p.apiFiles(c)
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

// UnservedGrants returns the grants in api-users that cover no topic of this instance. If the file cannot be read, it
// returns none, because Validate reports that.
func (c *Config) UnservedGrants() []string {
	if c.APIUsers == "" {
		return nil
	}
	names, err := access.UnservedGrants(c.APIUsers, slices.Concat(c.Requests, c.DelayTopics()))
	if err != nil {
		return nil
	}
	return names
}

func (p *problems) apiFiles(c *Config) {
	for _, f := range []struct {
		setting, path, need string
		check               func(path string) error
	}{
		{"api-users", c.APIUsers, "a file of callers", access.CheckCallers},
		{"api-tls-cert", c.APITLSCert, "PEM files of a certificate and its key",
			func(path string) error { return checkPair(path, c.APITLSKey) }},
		{"api-client-ca", c.APIClientCA, "a PEM file of authorities", checkCA},
		{"api-key-file", c.APIKeyFile, "a file with a key", access.CheckKeys},
	} {
		if f.path == "" {
			continue
		}
		p.want(c.API != "", f.setting, f.path, "api to be set")
		if err := f.check(f.path); err != nil {
			p.want(false, f.setting, f.path, fmt.Sprintf("%s: %v", f.need, pathless(err)))
		}
	}
}

func checkPair(cert, key string) error {
	if key == "" {
		return nil // problems.api reports it
	}
	_, err := tls.LoadX509KeyPair(cert, key)
	return err
}

func checkCA(path string) error {
	_, err := readCA(path)
	return err
}
