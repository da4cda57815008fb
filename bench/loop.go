package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/kit/child"
)

// loop is a bare loop, in a process of its own, that is ready to begin.
type loop struct {
	*process
	orders  *json.Encoder
	stdin   io.Closer
	answers *json.Decoder
	addr    string // of a bare server
	steps   int    // transactions, when work is done
}

// newLoop starts a bare loop.
func (bl *bareLoops) newLoop(ctx context.Context, o order) (*loop, error) {
	if bl.Profiles != "" {
		o.Profile = filepath.Join(bl.Profiles, o.Name+".pprof")
	}
	cmd := exec.Command(
		bl.Bare[0], append(bl.Bare[1:len(bl.Bare):len(bl.Bare)], "--brokers", strings.Join(bl.cfg.Brokers, ","))...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start a bare loop: %w", err)
	}
	out, write := io.Pipe()
	cmd.Stdout = write
	p, err := startProcess(cmd, filepath.Join(bl.Logs, "bare.log"))
	if err != nil {
		return nil, err
	}
	go func() {
		<-p.Exited()
		_ = write.Close() // always succeeds on a pipe
	}()
	l := &loop{process: p, orders: json.NewEncoder(in), stdin: in, answers: json.NewDecoder(bufio.NewReader(out))}
	if err := l.ask(ctx, o, &l.addr); err != nil {
		l.end()
		return nil, err
	}
	return l, nil
}

// ask sends a line and awaits the answer, until ctx ends.
func (l *loop) ask(ctx context.Context, line, answer any) error {
	stop := context.AfterFunc(ctx, func() { _ = l.Signal(child.Kill) })
	defer stop()
	err := l.orders.Encode(line)
	if err == nil {
		err = l.answers.Decode(answer)
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		l.kill()
		return fmt.Errorf("bare loop: %w\n%s", err, l.tail())
	}
	return nil
}

// work tells the loop to begin, and returns when it is done.
func (l *loop) work(ctx context.Context, at time.Time) error {
	var o outcome
	if err := l.ask(ctx, start{At: at}, &o); err != nil {
		return err
	}
	if o.Error != "" {
		return fmt.Errorf("bare loop: %s", o.Error)
	}
	l.steps = o.Steps
	return nil
}

// end ends the process. It may be called twice.
func (l *loop) end() {
	_ = l.stdin.Close()
	l.kill()
}

// logTail is the length of the end of a process's log in an error, in bytes.
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

// kill ends the process immediately.
func (p *process) kill() {
	_ = p.Signal(child.Kill) // it fails only if the process has ended
	<-p.Exited()
}

// tail is the end of the process's log, for an error.
func (p *process) tail() []byte {
	b, _ := os.ReadFile(p.log) // there is no better error to show
	return b[max(0, len(b)-logTail):]
}
