package kafkatest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// envRole has the test binary play a part in a test instead of running tests.
const envRole = "WATERCLOCK_KAFKATEST_ROLE"

const waitLimit = 20 * time.Second

func TestMain(m *testing.M) {
	switch os.Getenv(envRole) {
	case "parent":
		playParent()
	case "server":
		playServer()
	case "spinner":
		playSpinner()
	case "leaky":
		go spin()
		Main(LeakFree{m})
	default:
		Main(m)
	}
}

// playParent supervises a server as a cluster does its brokers.
func playParent() {
	r := &run{cmd: self("server"), exited: make(chan struct{})}
	r.cmd.Stdout = os.Stdout
	ownGroup(r.cmd)
	started := make(chan error, 1)
	go r.supervise(started)
	if err := <-started; err != nil {
		panic(err)
	}
	<-r.exited
}

// playServer prints an address and accepts there for ever.
func playServer() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	for {
		if _, err := l.Accept(); err != nil {
			panic(err)
		}
	}
}

// playSpinner keeps more threads busy than there are cores, for ever.
func playSpinner() {
	const threads = 8
	runtime.GOMAXPROCS(threads)
	for range threads - 1 {
		go spin()
	}
	fmt.Println("spinning")
	spin()
}

func spin() {
	for n := uint64(1); n != 0; n += 2 { // odd: never 0
	}
}

// self is this test binary in another role.
func self(role string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), envRole+"="+role)
	return cmd
}

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}
