package dev

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/waterclock/waterclock/internal/node/config"
)

const (
	// secondFile is the file in the data directory with the settings of a second instance.
	secondFile = "serve.yaml"
	// secondDir is the data directory of that instance, below that of dev.
	secondDir = "serve"
	// keyFile is the file in the data directory with the key by which instances forward calls to each other.
	keyFile = "api-key"
)

// shareKey gives an instance with an API a key to share with others, unless it has one. The key is kept for later
// starts, because a second instance may outlive the first.
func shareKey(cfg *config.Config) error {
	if cfg.API == "" || cfg.APIKeyFile != "" {
		return nil
	}
	cfg.APIKeyFile = filepath.Join(cfg.DataDir, keyFile)
	f, err := os.OpenFile(cfg.APIKeyFile, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case err == nil:
		_, err = fmt.Fprintln(f, rand.Text()+rand.Text())
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("make a key that instances share: %w", err)
	}
	return nil
}

// writeSecond writes the settings with which serve joins dev's group, and returns the path of the file. Settings by
// which requests are judged are those of dev; addresses and directories are the second instance's own.
func writeSecond(cfg *config.Config) (path string, err error) {
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return "", fmt.Errorf("name the data directory of a second instance: %w", err)
	}
	second, usual := *cfg, config.Default()
	second.DataDir = filepath.Join(dir, secondDir)
	second.HTTP, second.APIAudit = usual.HTTP, usual.APIAudit
	second.LogLevel, second.LogFormat = usual.LogLevel, usual.LogFormat
	second.InstanceID, second.OnStop, second.Pprof, second.Advertise = "", usual.OnStop, "", ""
	if host, _, err := net.SplitHostPort(cfg.API); err == nil {
		second.API = net.JoinHostPort(host, "0") // any free port
	}
	for _, file := range []*string{
		&second.APIKeyFile, &second.APIUsers, &second.APITLSCert, &second.APITLSKey, &second.APIClientCA,
		&second.HTTPWebConfig,
	} {
		if *file == "" {
			continue
		}
		if *file, err = filepath.Abs(*file); err != nil {
			return "", fmt.Errorf("name a file of a second instance: %w", err)
		}
	}
	text, err := second.Brief()
	if err != nil {
		return "", fmt.Errorf("encode the settings of a second instance: %w", err)
	}
	text = append([]byte("# The settings of waterclock dev, for a second instance beside it:\n"+
		"# waterclock serve --config THIS-FILE. dev writes this file at each start.\n"), bytes.TrimSpace(text)...)
	path = filepath.Join(cfg.DataDir, secondFile)
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return "", fmt.Errorf("write the settings of a second instance: %w", err)
	}
	return path, nil
}
