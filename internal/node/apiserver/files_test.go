package apiserver

import (
	"errors"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/node/config"
)

func TestFilesThatAreNotThere(t *testing.T) {
	for says, cfg := range map[string]config.Config{
		`api-users is "/none", needs a file of callers: no such file`:    {APIUsers: "/none"},
		`api-key-file is "/none", needs a file with a key: no such file`: {APIKeyFile: "/none"},
	} {
		if err := Validate(&cfg); !errors.Is(err, config.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %s", err, says)
		}
	}
	if err := Validate(&config.Config{}); err != nil {
		t.Error(err)
	}
}
