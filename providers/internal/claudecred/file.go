package claudecred

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// maxFile bounds the credentials file, which also holds the tokens of MCP
// servers, in bytes.
const maxFile = 1 << 20

// readFile reads a credentials file. It refuses what others than its owner may
// read or write, and what is no plain file; it does not wait, whatever the path
// leads to.
func readFile(path, source string) ([]byte, os.FileInfo, error) {
	f, err := open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, unavailable(CodeMissing, "not logged in: there is no %s; %s", source, login).WithCause(err)
	case err != nil:
		return nil, nil, unreadable(source, err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, unreadable(source, err)
	case !info.Mode().IsRegular():
		return nil, nil, unavailable(CodeUnreadable, "%s is not a plain file", source)
	case exposed(info):
		return nil, nil, unavailable(CodePermissions, "others than its owner may use %s (mode %04o); chmod 600 it, and renew the login if anyone could have read it", source, info.Mode().Perm())
	case info.Size() > maxFile:
		return nil, nil, unavailable(CodeMalformed, "%s is larger than %d bytes: it cannot be Claude's credentials", source, maxFile)
	}
	blob, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, nil, unreadable(source, err)
	case len(blob) > maxFile:
		return nil, nil, unavailable(CodeMalformed, "%s is larger than %d bytes: it cannot be Claude's credentials", source, maxFile)
	}
	return blob, info, nil
}

func unreadable(source string, err error) error {
	why := err
	var path *fs.PathError
	if errors.As(err, &path) {
		why = path.Err // without the path
	}
	return unavailable(CodeUnreadable, "%s cannot be read (%v); make it readable for the user that Sluice runs as", source, why).WithCause(err)
}

// stamp writes what makes two states of a file different.
func stamp(info os.FileInfo) string {
	return fmt.Sprint(inode(info), info.Size(), info.ModTime().UnixNano(), info.Mode())
}
