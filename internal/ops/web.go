package ops

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/exporter-toolkit/web"
)

// CheckWeb reads a web configuration and the certificates that it names, and
// says what is wrong with them. The format is Prometheus's own, see
// https://prometheus.io/docs/prometheus/latest/configuration/https/.
func CheckWeb(path string) error {
	if err := web.Validate(path); err != nil {
		return fmt.Errorf("web configuration %s: %w", path, err)
	}
	return nil
}

// serveWeb serves as the web configuration at path says, which is read again at
// each connection and request: users and certificates change without a restart.
// An empty path is plain HTTP, open to all who can reach it.
func serveWeb(l net.Listener, srv *http.Server, path string, log *slog.Logger) error {
	if path == "" {
		return srv.Serve(l)
	}
	return web.Serve(l, srv, &web.FlagConfig{WebConfigFile: &path}, log)
}
