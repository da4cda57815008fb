package config

import (
	"regexp"
	"strings"
)

// EnvURL is the URL of the HTTP API that commands call. It and EnvProfile are the only variables with the prefix that
// are no settings.
const EnvURL = EnvPrefix + "URL"

// EnvOf returns the environment variable of a setting: data-dir is
// WATERCLOCK_DATA_DIR.
func EnvOf(setting string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

// settingOf is the inverse of EnvOf.
func settingOf(env string) string {
	return strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(env, EnvPrefix), "_", "-"))
}

// isServiceLink reports whether a variable is one that Kubernetes sets in every pod for a Service called waterclock or
// waterclock-something. No setting has such a name.
func isServiceLink(env string) bool {
	ok, _ := regexp.MatchString(`^WATERCLOCK(_[A-Z0-9]+)*?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|`+
		`PORT|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`, env)
	return ok
}
