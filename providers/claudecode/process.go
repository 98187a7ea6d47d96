package claudecode

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

const (
	// maxLine bounds one line of the program, in bytes.
	maxLine = 32 << 20
	// maxStderr bounds what is kept of its complaints, from the beginning.
	maxStderr = 4 << 10
	readSize  = 64 << 10
	// maxQueued is how many lines of input wait for a program that does not read:
	// no more are written without hearing from it (initialize, a turn, a request).
	maxQueued = 3

	// exitWait is how long a program that has answered may take to leave by itself
	// (it takes 30 to 90 ms): it may be writing its login or its state.
	exitWait = 2 * time.Second
	// termWait is how long one that is told to end (SIGTERM) may take.
	termWait = time.Second
	// killWait bounds the wait for one that was killed: only a process in an
	// uninterruptible call takes that long, and it cannot be helped.
	killWait = 5 * time.Second
	// drainWait bounds the wait for output after the program's end: a child that
	// has left its group may hold the pipe open.
	drainWait = 500 * time.Millisecond
)

// process is one program that runs, in a process group of its own. Four goroutines
// serve it: one waits for its end, one writes its input, one splits its output
// into lines, one reads what it complains of. stop ends them all.
//
// A process ends at the latest with its group being killed: its children go with
// it, and no pipe that one of them holds open keeps anybody waiting.
type process struct {
	cmd            *exec.Cmd
	stdin          *os.File
	stdout, stderr *os.File
	// lines gives the output line by line, without the line's end; closed at the
	// end of the output. Each line is its receiver's own.
	lines chan []byte
	input chan []byte
	// exited is closed when the process is gone; state is set before.
	exited chan struct{}
	state  *os.ProcessState
	quit   chan struct{}  // closed when nobody wants lines any more
	served sync.WaitGroup // the goroutines of the pipes
	said   *head          // of stderr
	hushed chan struct{}  // closed at the end of stderr
	failed error          // why reading ended early; set before lines is closed
	once   sync.Once
	closed bool // input
}

// start starts the program with its arguments and environment.
func (p *Provider) start(args, env []string) (*process, error) {
	path, err := p.program()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	if cmd.Dir, err = p.dir.get(); err != nil {
		return nil, err
	}
	cmd.Env = env
	isolate(cmd)
	return launch(cmd)
}

// launch starts a command that is set up but for its pipes.
func launch(cmd *exec.Cmd) (*process, error) {
	p := &process{
		cmd: cmd, said: &head{}, lines: make(chan []byte), input: make(chan []byte, maxQueued),
		exited: make(chan struct{}), quit: make(chan struct{}), hushed: make(chan struct{}),
	}
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
	}()
	for _, c := range []struct {
		ours   **os.File
		give   func(*os.File)
		writes bool // the child does
	}{
		{&p.stdin, func(f *os.File) { cmd.Stdin = f }, false},
		{&p.stdout, func(f *os.File) { cmd.Stdout = f }, true},
		{&p.stderr, func(f *os.File) { cmd.Stderr = f }, true},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			p.closePipes()
			return nil, subjects.Errorf(subjects.KindProvider, "no pipe to the claude program could be made").WithCause(err)
		}
		if c.writes {
			r, w = w, r
		}
		*c.ours = w
		theirs = append(theirs, r)
		c.give(r)
	}
	started := make(chan error)
	go p.live(started)
	if err := <-started; err != nil {
		p.closePipes()
		return nil, notRunnable(err)
	}
	p.served.Go(p.read)
	p.served.Go(func() {
		defer close(p.hushed)
		p.said.fill(p.stderr)
	})
	p.served.Go(p.feed)
	return p, nil
}

func (p *process) closePipes() {
	for _, f := range []*os.File{p.stdin, p.stdout, p.stderr} {
		if f != nil {
			f.Close()
		}
	}
}

// live starts the process and waits for its end. Its thread is its own: on Linux
// the process is to die with its parent, which to the kernel is this thread.
func (p *process) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.state, _ = p.cmd.Process.Wait()
	killGroup(p.cmd) // what it left behind
	close(p.exited)
	for _, f := range []*os.File{p.stdout, p.stderr} {
		if f.SetReadDeadline(time.Now().Add(drainWait)) != nil {
			time.AfterFunc(drainWait, func() { f.Close() })
		}
	}
}

// send queues a line of input; it does not wait for the program to read it.
func (p *process) send(b []byte) {
	select {
	case p.input <- b:
	case <-p.exited:
	case <-p.quit:
	}
}

// closeInput says that no more input comes.
func (p *process) closeInput() {
	if !p.closed {
		p.closed = true
		close(p.input)
	}
}

// feed writes the input. A program that does not read it any more is noticed by
// its output or its end.
func (p *process) feed() {
	defer p.stdin.Close()
	for b := range p.input {
		if _, err := p.stdin.Write(b); err != nil {
			for range p.input { //nolint:revive // let the sender go on
			}
			return
		}
	}
}

// read splits the output into lines, and takes it away when nobody wants it any
// more: a program must not be held up by a full pipe on its way out.
func (p *process) read() {
	defer close(p.lines)
	buf := make([]byte, readSize)
	var line []byte
	for {
		select {
		case <-p.exited:
			// Anew before each read: the time in which nobody took a line is not the
			// program's.
			_ = p.stdout.SetReadDeadline(time.Now().Add(drainWait))
		default:
		}
		n, err := p.stdout.Read(buf)
		for data := buf[:n]; len(data) > 0 && p.failed == nil; {
			part, rest, whole := bytes.Cut(data, []byte{'\n'})
			line, data = append(line, part...), rest
			if len(line) > maxLine {
				p.failed = subjects.Errorf(subjects.KindProvider, "the claude program printed a line above %d MiB", maxLine>>20)
			} else if whole {
				p.give(line)
				line = nil
			}
		}
		switch {
		case p.failed != nil:
			return
		case err != nil:
			p.give(line)
			return
		}
	}
}

func (p *process) give(line []byte) {
	if line = bytes.TrimSpace(line); len(line) == 0 {
		return
	}
	select {
	case p.lines <- line:
	case <-p.quit:
	}
}

// ending is how a process is ended.
type ending int

const (
	// told to end (SIGTERM), and then killed.
	told ending = iota
	// gently: one that has answered goes by itself; it may be writing its login.
	gently
	// atOnce: one that is about to ask the API again is killed.
	atOnce
)

// stop ends the process and waits for it.
func (p *process) stop(how ending) {
	p.once.Do(func() {
		p.closeInput()
		close(p.quit)
		switch {
		case how == gently && p.within(exitWait):
		case how != atOnce && p.terminated():
		default:
			killGroup(p.cmd)
			p.within(killWait)
		}
		p.closePipes()
		p.served.Wait()
	})
}

func (p *process) terminated() bool {
	terminateGroup(p.cmd)
	return p.within(termWait)
}

// within waits for the end of the process.
func (p *process) within(d time.Duration) bool { return within(p.exited, d) }

func within(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// head keeps the beginning of a stream and reads on to its end.
type head struct {
	mu   sync.Mutex
	text []byte
}

func (h *head) fill(f *os.File) {
	buf := make([]byte, 4<<10)
	for {
		n, err := f.Read(buf)
		h.mu.Lock()
		h.text = append(h.text, buf[:min(n, maxStderr-len(h.text))]...)
		h.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.text)
}
