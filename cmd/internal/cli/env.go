package cli

import (
	"strings"

	"github.com/alecthomas/kong"
)

// environ is an environment in the form of os.Environ. It is handed in rather
// than read, so that a command line can be run inside a test.
type environ []string

// get returns a variable, or "" when it is not set. The last one wins, as in a process.
func (e environ) get(name string) string {
	for i := len(e) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(e[i], "="); ok && k == name {
			return v
		}
	}
	return ""
}

// envTag is the struct tag that names a flag's variable. Kong's own "env" tag
// would read the process's environment.
const envTag = "envar"

// resolve gives kong the value of a flag that the command line does not have.
// An empty variable counts as not set.
func (e environ) resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if name := flag.Tag.Get(envTag); name != "" {
		if v := e.get(name); v != "" {
			return v, nil
		}
	}
	return nil, nil
}

// helpWithEnv adds a flag's default and its variable to its help. The tag
// "usual" has a default that is not the same in every case.
func helpWithEnv(v *kong.Value) string {
	var extra []string
	if d := v.Tag.Get("usual"); d != "" {
		extra = append(extra, "default "+d)
	} else if v.HasDefault && v.Flag != nil {
		extra = append(extra, "default "+v.Default)
	}
	if name := v.Tag.Get(envTag); name != "" {
		extra = append(extra, "$"+name)
	}
	if len(extra) == 0 {
		return v.Help
	}
	return strings.TrimSuffix(v.Help, ".") + " [" + strings.Join(extra, "; ") + "]."
}
