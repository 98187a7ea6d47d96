package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/sluice-llm/sluice"
)

// versionCmd prints the version.
type versionCmd struct {
	JSON bool `help:"Print it as JSON."`
}

// Help implements kong.HelpProvider.
func (*versionCmd) Help() string {
	return `Example:

    sluice version --json | jq -r .version`
}

type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// Run prints.
func (c *versionCmd) Run(a *app) error {
	a.json = c.JSON
	v := version()
	if c.JSON {
		b, err := json.Marshal(v)
		if err != nil {
			return err
		}
		a.printJSON(b)
		return nil
	}
	revision := ""
	if v.Revision != "" {
		revision = " (" + v.Revision + ")"
	}
	fmt.Fprintf(a.out, "sluice %s%s, %s %s\n", v.Version, revision, v.Go, v.Platform)
	return nil
}

// version reads what the Go tool wrote into the binary.
func version() versionInfo {
	v := versionInfo{Version: sluice.Version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value[:min(len(s.Value), 12)]
		}
	}
	return v
}
