package operation

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/waterclock/waterclock/internal/kafkatest"
)

// probe runs the health check that docker-compose.yml has for the broker, against an address of this machine.
func probe(t *testing.T, address string) error {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct{ Healthcheck struct{ Test []string } }
	}
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	test := compose.Services["kafka"].Healthcheck.Test
	script := strings.ReplaceAll(test[len(test)-1], "$$", "$")
	there := strings.Replace(script, "/dev/tcp/127.0.0.1/9092", "/dev/tcp/"+strings.Replace(address, ":", "/", 1), 1)
	if len(test) != 4 || test[0] != "CMD" || there == script {
		t.Fatalf("the health check is %q", test)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return exec.CommandContext(ctx, test[1], test[2], there).Run()
}

// TestComposeHealthcheck asks a real broker, nobody, and servers that are no broker or know of none yet.
func TestComposeHealthcheck(t *testing.T) {
	if err := probe(t, kafkatest.Shared(t).Seeds()[0]); err != nil {
		t.Errorf("a broker is not healthy: %v", err)
	}
	for name, answer := range map[string]string{
		"nothing":    "",
		"no brokers": "\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00",
		"HTTP":       "HTTP/1.1 400 Bad Request\r\n\r\n",
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.ReadFull(conn, make([]byte, 18)) // the request
				_, _ = io.WriteString(conn, answer)
				_ = conn.Close()
			}
		}()
		if probe(t, l.Addr().String()) == nil {
			t.Errorf("%s: healthy", name)
		}
		_ = l.Close()
		if probe(t, l.Addr().String()) == nil {
			t.Errorf("%s: healthy though nobody listens", name)
		}
	}
}
