package persistence

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
)

// Reason says why the database cannot be opened.
type Reason string

// The reasons of an OpenError.
const (
	// Locked: another process has the folder.
	Locked Reason = "locked"
	// Corrupt: the files are damaged. A new folder is filled from the stream.
	Corrupt Reason = "corrupt"
	// NoSpace: less than MinFreeBytes are free.
	NoSpace Reason = "no space"
	// Permission: this user may not write there.
	Permission Reason = "permission"
	// Other: anything else, among it a folder written by a newer version.
	Other Reason = "other"
)

// OpenError is why Open failed. Its text says what to do about it.
type OpenError struct {
	// Dir is the folder; "" for a database in memory.
	Dir    string
	Reason Reason
	// Detail is what was found, in one line.
	Detail string
	// Err is the cause; may be nil.
	Err error
}

// Error implements error.
func (e *OpenError) Error() string {
	what := e.Detail
	if what == "" && e.Err != nil {
		what = e.Err.Error()
	}
	switch e.Reason {
	case Locked:
		return fmt.Sprintf("another sluice uses this data folder (%s%s): stop it or give --data another folder", e.Dir, comma(what))
	case Corrupt:
		return fmt.Sprintf("the usage database in %s is damaged (%s): move %s away; it is rebuilt from the usage stream at the next start", e.Dir, what, e.Dir)
	case NoSpace:
		return fmt.Sprintf("the disk under %s is full (%s): free some space or give --data another folder", e.Dir, what)
	case Permission:
		return fmt.Sprintf("the usage database in %s cannot be written (%s): give the folder to the user that runs sluice or give --data another folder", e.Dir, what)
	case Other:
	}
	return fmt.Sprintf("the usage database in %s cannot be opened: %s", e.Dir, what)
}

// Unwrap returns the cause.
func (e *OpenError) Unwrap() error { return e.Err }

func comma(s string) string {
	if s == "" {
		return ""
	}
	return ", " + s
}

func corrupt(dir, format string, args ...any) *OpenError {
	return &OpenError{Dir: dir, Reason: Corrupt, Detail: fmt.Sprintf(format, args...)}
}

// openErrorOf classifies what the file system or Badger said. Badger formats
// its causes into text, so text is looked at where the error has no code.
func openErrorOf(dir string, err error) *OpenError {
	var known *OpenError
	if errors.As(err, &known) {
		return known
	}
	e := &OpenError{Dir: dir, Reason: Corrupt, Detail: firstLine(err.Error()), Err: err}
	switch text := err.Error(); {
	case strings.Contains(text, "Cannot acquire directory lock"):
		e.Reason, e.Detail = Locked, ""
	case errors.Is(err, ErrNoSpace), says(err, syscall.ENOSPC), says(err, syscall.EDQUOT), says(err, syscall.EFBIG):
		e.Reason = NoSpace
	case errors.Is(err, fs.ErrPermission), says(err, syscall.EACCES), says(err, syscall.EPERM), says(err, syscall.EROFS):
		e.Reason = Permission
	case says(err, syscall.EMFILE), says(err, syscall.ENFILE), says(err, syscall.ENOMEM), says(err, syscall.EIO),
		says(err, syscall.ENOTDIR), says(err, syscall.EEXIST), says(err, syscall.ENAMETOOLONG):
		e.Reason = Other
	}
	return e
}

func says(err error, code syscall.Errno) bool {
	return errors.Is(err, code) || strings.Contains(err.Error(), code.Error())
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}
