package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// child is a process of the bench that speaks JSON lines: a hello when it is
// ready, then one answer for each command.
type child struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	addr string
}

// hello is the first line of a child.
type hello struct {
	Addr  string `json:"addr"`
	Error string `json:"error,omitempty"`
}

// startChild runs one of the bench's own subcommands and waits until it is ready.
func startChild(name string, errw io.Writer, args ...string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, append([]string{name}, args...)...)
	cmd.Stderr = errw
	cmd.SysProcAttr = dieWithParent()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c := &child{name: name, cmd: cmd, in: in, out: bufio.NewReaderSize(out, 1<<16)}
	var h hello
	if err := c.receive(&h, 20*time.Second); err != nil || h.Error != "" {
		c.stop()
		return nil, errors.Join(fmt.Errorf("%s did not start: %s", name, h.Error), err)
	}
	c.addr = h.Addr
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// ask sends one command and reads its answer. A child that does not answer in
// time is killed.
func (c *child) ask(command, answer any, limit time.Duration) error {
	b, err := json.Marshal(command)
	if err != nil {
		return err
	}
	if _, err := c.in.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	return c.receive(answer, limit)
}

func (c *child) receive(answer any, limit time.Duration) error {
	t := time.AfterFunc(limit, func() { _ = c.cmd.Process.Kill() })
	line, err := c.out.ReadBytes('\n')
	if !t.Stop() {
		return fmt.Errorf("%s gave no answer within %v", c.name, limit)
	}
	if err != nil {
		return fmt.Errorf("%s ended: %w", c.name, err)
	}
	if err := json.Unmarshal(line, answer); err != nil {
		return fmt.Errorf("%s said %q: %w", c.name, line, err)
	}
	return nil
}

// stop ends the child by its process id and waits for it.
func (c *child) stop() {
	_ = c.in.Close()
	stopProcess(c.cmd, 2*time.Second)
}

// stopProcess asks a process to end, and kills it when it has not after grace.
// It reports whether the process ended by itself.
func stopProcess(cmd *exec.Cmd, grace time.Duration) bool {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	t := time.AfterFunc(grace, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	return t.Stop()
}

// serveCommands is the other end: it says hello and answers each command until
// the input ends.
func serveCommands[C, A any](in io.Reader, out io.Writer, addr string, answer func(C) (A, error)) error {
	enc := json.NewEncoder(out)
	if err := enc.Encode(hello{Addr: addr}); err != nil {
		return err
	}
	dec := json.NewDecoder(in)
	for {
		var c C
		if err := dec.Decode(&c); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		a, err := answer(c)
		if err != nil {
			return err
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
}
