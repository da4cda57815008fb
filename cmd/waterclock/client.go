package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/api/client"
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
type callee struct{ client.Options }

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
