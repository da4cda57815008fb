package main

import (
	"cmp"
	"errors"

	"github.com/spf13/pflag"

	"github.com/waterclock/waterclock/internal/api/client"
	"github.com/waterclock/waterclock/internal/node/config"
)

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

// errNoAPI says that a profile has no HTTP API. The default, that of dev, is not asked instead: it is another service.
var errNoAPI = errors.New("the profile has no url, which this command calls: waterclock profile set NAME --url adds it")

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
