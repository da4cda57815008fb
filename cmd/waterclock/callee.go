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

func (o *callee) flags(fs *pflag.FlagSet) {
	fs.StringVar(&o.URL, config.ProfileURL, "",
		"`URL` of an instance's HTTP API (default: "+config.EnvURL+", else "+defaultURL+")")
	fs.StringVar(&o.User, config.ProfileUser, "", "call the API as user `NAME`, with --password-file")
	fs.StringVar(&o.PasswordFile, config.ProfilePasswordFile, "", "`FILE` that holds the user's password")
	fs.StringVar(&o.TokenFile, config.ProfileTokenFile, "", "`FILE` that holds a bearer token of the API")
	fs.StringVar(&o.CA, config.ProfileCA, "", "PEM `FILE` of authorities that the API's certificate may be of, "+
		"beside the system's")
}

// errNoAPI says that a profile has no HTTP API. The default, that of dev, is not asked instead: it is another service.
var errNoAPI = errors.New("the profile has no url, which this command calls: waterclock profile set NAME --url adds it")

// fill adds what the flags leave out: the URL from the environment, the profile or the default, and the credentials
// from the profile. The profile's credentials go only to the profile's URL.
func (o *callee) fill(p *process, profile *config.Profile) error {
	o.URL = cmp.Or(o.URL, p.env(config.EnvURL))
	if url := profile.Text(config.ProfileURL); url != "" && (o.URL == "" || o.URL == url) {
		o.URL, o.CA = url, cmp.Or(o.CA, profile.Text(config.ProfileCA))
		if o.User == "" && o.PasswordFile == "" && o.TokenFile == "" {
			o.User, o.PasswordFile = profile.Text(config.ProfileUser), profile.Text(config.ProfilePasswordFile)
			o.TokenFile = profile.Text(config.ProfileTokenFile)
		}
	}
	if o.URL == "" && profile != nil {
		return config.Invalid(errNoAPI)
	}
	o.URL = cmp.Or(o.URL, defaultURL)
	return nil
}
