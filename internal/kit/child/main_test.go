package child

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// envRole has the test binary play a part in a test instead of running tests.
const envRole = "WATERCLOCK_CHILD_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(envRole) {
	case "parent":
		playParent()
	case "server":
		playServer()
	case "spinner":
		playSpinner()
	default:
		os.Exit(m.Run())
	}
}

// playParent starts a server and waits for its end.
func playParent() {
	cmd := self("server")
	cmd.Stdout = os.Stdout
	p, err := Start(cmd)
	if err != nil {
		panic(err)
	}
	_ = p.Wait() // it ends with this process
}

// playServer prints an address and accepts there forever.
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

// playSpinner keeps more threads busy than there are cores, forever.
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
func self(role string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envRole+"="+role)
	return cmd
}

// A process that ended says how, and takes no signals.
func TestEnded(t *testing.T) {
	p, err := Start(exec.Command("false"))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err == nil || p.Alive() {
		t.Errorf("ended with %v, alive: %v", err, p.Alive())
	}
	if err := p.Signal(Kill); err != ErrEnded { //nolint:errorlint // it is not wrapped
		t.Errorf("signal: %v", err)
	}
	if _, err := Start(exec.Command("/does/not/exist")); err == nil {
		t.Error("a program that is not there was started")
	}
}
