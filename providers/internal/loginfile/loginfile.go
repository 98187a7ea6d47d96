// Package loginfile reads the file in which another program keeps a login. It
// never writes: renewing a login is that program's.
//
// A file is refused that could lead astray: one that others than its owner have
// rights to, one above a bound, one that is no plain file. Reading it does not
// wait, whatever the path leads to. No error of this package holds the path or
// any of the content, so that a provider may show it.
package loginfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// Max bounds a file, in bytes.
const Max = 1 << 20

// Problem is why a file was not read.
type Problem int

// The problems.
const (
	Missing    Problem = iota + 1 // there is no such file
	Unreadable                    // the system does not give it
	NotPlain                      // a folder, a pipe, a device
	Exposed                       // others than its owner have rights to it
	TooLarge                      // it has more than Max bytes
)

// Error is a file that was not read.
type Error struct {
	Problem Problem
	// Mode has the rights of one that is Exposed.
	Mode fs.FileMode
	// Why is the system's own reason, without the path; nil where there is none.
	Why error
}

// Error says it in the words that stand after the file's name.
func (e *Error) Error() string {
	switch e.Problem {
	case Missing:
		return "is not there"
	case NotPlain:
		return "is not a plain file"
	case Exposed:
		return fmt.Sprintf("is open to others than its owner (mode %04o)", e.Mode.Perm())
	case TooLarge:
		return fmt.Sprintf("has more than %d bytes", Max)
	case Unreadable:
	}
	return fmt.Sprintf("cannot be read (%v)", e.Why)
}

// Unwrap returns the system's own reason.
func (e *Error) Unwrap() error { return e.Why }

// State is what a file was like when it was read. The zero State is that of no
// file.
type State struct {
	info  os.FileInfo
	young bool
}

// young is how long after a change a file is not known to be unchanged: within
// it a second change may leave the time, the size and the inode as they are.
const young = 2 * time.Second

// Read reads the file. Its error is an *Error.
func Read(path string) ([]byte, State, error) {
	f, err := open(path)
	if err != nil {
		return nil, State{}, failed(err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, State{}, failed(err)
	case !info.Mode().IsRegular():
		return nil, State{}, &Error{Problem: NotPlain}
	case exposed(info):
		return nil, State{}, &Error{Problem: Exposed, Mode: info.Mode()}
	}
	text, err := io.ReadAll(io.LimitReader(f, Max+1))
	switch {
	case err != nil:
		return nil, State{}, failed(err)
	case len(text) > Max:
		return nil, State{}, &Error{Problem: TooLarge}
	}
	return text, State{info, time.Since(info.ModTime()) < young}, nil
}

func failed(err error) *Error {
	e := &Error{Problem: Unreadable, Why: err}
	if errors.Is(err, fs.ErrNotExist) {
		e.Problem = Missing
	}
	var withPath *fs.PathError
	if errors.As(err, &withPath) {
		e.Why = withPath.Err
	}
	return e
}

// Same reports whether the file is certainly as it was: the same inode, size,
// time of change and rights.
func (s State) Same(path string) bool {
	if s.info == nil || s.young {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(s.info, now) && s.info.Size() == now.Size() &&
		s.info.ModTime().Equal(now.ModTime()) && s.info.Mode() == now.Mode()
}
