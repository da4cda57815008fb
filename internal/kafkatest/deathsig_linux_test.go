package kafkatest

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"
)

func TestBrokersDieWithTheTestProcess(t *testing.T) {
	parent := self("parent")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("read the server's address: %v", err)
	}
	addr := strings.TrimSpace(line)
	if !accepts(addr) {
		t.Fatalf("nobody listens on %s", addr)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed
	ctx := deadline(t)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for accepts(addr) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("the server outlives its parent")
		}
	}
}

func accepts(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}
