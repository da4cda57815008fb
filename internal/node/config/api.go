package config

import (
	"crypto/tls"
	"fmt"
	"path"
	"strings"

	"github.com/waterclock/waterclock/internal/kit/loopback"
)

// api checks that the API is not open by accident.
func (p *problems) api(c *Config) {
	p.want(c.API == "" || isAddress(c.API, false), "api", c.API, "host:port, or to be empty")
	p.want(c.API == "" || !isAddress(c.API, false) || c.APIOpen || c.APIUsers != "" || loopback.Is(c.API),
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
	p.want(c.APIUsers == "" || c.API != "", "api-users", c.APIUsers, "api to be set")
	p.want(c.APIKeyFile == "" || c.API != "", "api-key-file", c.APIKeyFile, "api to be set")
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

// apiFiles checks the files of TLS. Those of callers and of keys are checked by who reads them: apiserver.Validate.
func (p *problems) apiFiles(c *Config) {
	for _, f := range []struct {
		setting, path, need string
		check               func(path string) error
	}{
		{"api-tls-cert", c.APITLSCert, "PEM files of a certificate and its key",
			func(path string) error { return checkPair(path, c.APITLSKey) }},
		{"api-client-ca", c.APIClientCA, "a PEM file of authorities", checkCA},
	} {
		if f.path == "" {
			continue
		}
		p.want(c.API != "", f.setting, f.path, "api to be set")
		if err := f.check(f.path); err != nil {
			p.want(false, f.setting, f.path, fmt.Sprintf("%s: %v", f.need, Pathless(err)))
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
