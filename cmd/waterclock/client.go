package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/client"
	"github.com/waterclock/waterclock/internal/node/config"
)

// clientSettings is settings for a command that sends a request. The returned function also sets the request topic:
// --topic, or else the topic in the setting requests, or else timers.
func clientSettings(p *process, cmd *cobra.Command, topic *string) func() (*config.Config, error) {
	load := brokerSettings(p, cmd)
	cmd.Flags().StringVar(topic, "topic", "",
		"request `TOPIC` (default: the only one of the setting requests, else timers)")
	cmd.Flags().StringVar(topic, "requests", "", "another name of --topic: `TOPIC`")
	_ = cmd.Flags().MarkHidden("requests") // fails only for a flag that does not exist
	return func() (*config.Config, error) {
		cfg, err := load()
		if err != nil || *topic != "" {
			return cfg, err
		}
		switch len(cfg.Requests) {
		case 0:
			*topic = defaultRequests
		case 1:
			*topic = cfg.Requests[0]
		default:
			return nil, usagef("the setting requests has %d topics; choose one with --topic", len(cfg.Requests))
		}
		return cfg, nil
	}
}

// brokerSettings is settings for a command that only needs to reach the brokers, by default those of dev.
func brokerSettings(p *process, cmd *cobra.Command) func() (*config.Config, error) {
	defaults := config.Default()
	defaults.Brokers = []string{defaultBroker}
	profile := addProfileFlag(p, cmd.Flags())
	loader := config.NewLoader(defaults)
	loader.AddFlags(cmd.Flags(), config.Client, config.Log)
	return func() (*config.Config, error) {
		chosen, err := profile.choose()
		if err != nil {
			return nil, err
		}
		loader.UseProfile(chosen)
		elsewhere := cmd.Flags().Changed("brokers") || p.env(config.EnvOf("brokers")) != "" || profile.hasFile()
		if chosen != nil && chosen.Text("brokers") == "" && !elsewhere { // the default, dev, is another service
			return nil, usagef("the profile has no brokers, to which this command connects: "+
				"waterclock profile set %s --brokers adds them", chosen.Name)
		}
		cfg, err := loader.Load(p.environ)
		if err != nil {
			return nil, err
		}
		if at := chosen.At(cfg.Brokers); at != chosen {
			fmt.Fprintf(p.stderr, "note: profile %s logs in to its own brokers only, not to %s\n", chosen.Name,
				strings.Join(cfg.Brokers, ","))
			loader.UseProfile(at)
			if cfg, err = loader.Load(p.environ); err != nil {
				return nil, err
			}
		}
		return cfg, cfg.ValidateClient()
	}
}

// callee is the HTTP API that a command calls, and the credentials for it.
type callee struct {
	URL                string
	User, PasswordFile string
	TokenFile          string // instead of a user
	CA                 string // PEM file of authorities, in addition to the system's
}

func (c *callee) flags(fs *pflag.FlagSet) {
	fs.StringVar(&c.URL, config.ProfileURL, "",
		"`URL` of an instance's HTTP API (default: "+config.EnvURL+", else "+defaultURL+")")
	fs.StringVar(&c.User, config.ProfileUser, "", "call the API as user `NAME`, with --password-file")
	fs.StringVar(&c.PasswordFile, config.ProfilePasswordFile, "", "`FILE` that holds the user's password")
	fs.StringVar(&c.TokenFile, config.ProfileTokenFile, "", "`FILE` that holds a bearer token of the API")
	fs.StringVar(&c.CA, config.ProfileCA, "", "PEM `FILE` of authorities that the API's certificate may be of, "+
		"beside the system's")
}

// errNoAPI means that a profile has no HTTP API. The default, that of dev, is not used instead: it is another
// service.
var errNoAPI = errors.New("the profile has no url, which this command needs: waterclock profile set NAME --url adds it")

// fill adds what the flags leave out: the URL from the environment, the profile or the default, and the credentials
// from the profile. The profile's credentials go only to the profile's URL.
func (c *callee) fill(p *process, profile *config.Profile) error {
	c.URL = cmp.Or(c.URL, p.env(config.EnvURL))
	if url := profile.Text(config.ProfileURL); url != "" && (c.URL == "" || c.URL == url) {
		c.URL, c.CA = url, cmp.Or(c.CA, profile.Text(config.ProfileCA))
		if c.User == "" && c.PasswordFile == "" && c.TokenFile == "" {
			c.User, c.PasswordFile = profile.Text(config.ProfileUser), profile.Text(config.ProfilePasswordFile)
			c.TokenFile = profile.Text(config.ProfileTokenFile)
		}
	}
	if c.URL == "" && profile != nil {
		return config.Invalid(errNoAPI)
	}
	c.URL = cmp.Or(c.URL, defaultURL)
	return nil
}

// client returns a client of the API, which makes each call once: a person waits. An error names the flag.
func (c *callee) client() (*client.Client, error) {
	o := client.Options{URLs: []string{c.URL}, User: c.User, RetryFor: -1}
	var err error
	if o.Token, err = secret("--token-file", c.TokenFile); err != nil {
		return nil, err
	}
	if o.Password, err = secret("--password-file", c.PasswordFile); err != nil {
		return nil, err
	}
	switch {
	case (c.User == "") != (c.PasswordFile == ""):
		return nil, errors.New("--user and --password-file must be set together")
	case o.Token != "" && o.User != "":
		return nil, errors.New("--token-file and --user exclude each other")
	}
	if c.CA != "" {
		if o.HTTP, err = trusting(c.CA); err != nil {
			return nil, fmt.Errorf("--ca: %w", err)
		}
	}
	made, err := client.New(o)
	if err != nil {
		return nil, fmt.Errorf("--url is %q, needs http://HOST:PORT or https://HOST:PORT", c.URL)
	}
	return made, nil
}

// trusting returns an HTTP client that also trusts the authorities of a file.
func trusting(file string) (*http.Client, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", file)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

func secret(option, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", option, err)
	}
	if text = bytes.TrimRight(text, "\r\n"); len(text) == 0 {
		return "", fmt.Errorf("%s: %s is empty", option, file)
	}
	return string(text), nil
}

// withRemedy adds to the text of an error of the API which flag would help.
func withRemedy(err error) error {
	none, ok := errors.AsType[*client.NoAnswerError](err)
	if !ok {
		switch {
		case !errors.Is(err, client.ErrNotAPI):
		case strings.HasSuffix(err.Error(), "not from its API"):
			err = fmt.Errorf("%w; does --url name it?", err)
		default:
			err = fmt.Errorf("%w; does --url name the API, and no proxy?", err)
		}
		return err
	}
	network, _ := errors.AsType[*net.OpError](none.Err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](none.Err)
	remedy := ""
	switch {
	case network != nil && network.Op == "dial":
		remedy = fmt.Sprintf("no HTTP API at %s: %v; dev has one, serve with --api; --url or WATERCLOCK_URL names it",
			none.URL, none.Err)
	case errors.Is(none.Err, context.DeadlineExceeded), errors.Is(none.Err, io.EOF),
		errors.Is(none.Err, syscall.ECONNRESET):
		remedy = none.URL + " does not respond; does --url name an instance's API, and not a broker?"
	case errors.Is(none.Err, http.ErrSchemeMismatch):
		remedy = none.URL + " speaks HTTP without TLS: name it with http://"
	case untrusted:
		remedy = fmt.Sprintf("%v; --ca names a file of the authorities that this machine does not know", none)
	default:
		return err
	}
	return &remediedError{strings.Replace(err.Error(), none.Error(), remedy, 1), err}
}

// remediedError is an error with another text.
type remediedError struct {
	text string
	error
}

func (r *remediedError) Error() string { return r.text }

// Unwrap returns the error.
func (r *remediedError) Unwrap() error { return r.error }
