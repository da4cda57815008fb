package bench

import (
	"fmt"
	"os"
	"os/exec"

	"github.com/waterclock/waterclock/internal/kit/child"
)

// logTail is how much of a process's log an error shows, in bytes.
const logTail = 4 << 10

// process is a separate program, so that its processor time and memory are known, and so that it can be killed. Its
// stderr goes to a file.
type process struct {
	*child.Process
	log string // file
}

// startProcess starts a command. It sets stderr; the caller has set the other streams.
func startProcess(cmd *exec.Cmd, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open a log: %w", err)
	}
	defer out.Close()
	cmd.Stderr = out
	p, err := child.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return &process{p, log}, nil
}

// kill ends the process at once.
func (p *process) kill() {
	_ = p.Signal(child.Kill) // it fails only if the process has ended
	<-p.Exited()
}

// tail is the end of the process's log, for an error.
func (p *process) tail() []byte {
	b, _ := os.ReadFile(p.log) // there is no better error to show
	return b[max(0, len(b)-logTail):]
}
