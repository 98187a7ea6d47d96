package claudecred

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"time"

	"github.com/sluice-llm/sluice/providers/internal/loginfile"
)

// notFound is the exit status of security(1) where the keychain has no such entry
// (errSecItemNotFound).
const notFound = 44

// systemKeychain asks the login keychain for the entry that the claude program
// makes. The program may ask a person to unlock it: ctx bounds that.
func systemKeychain(ctx context.Context) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "/usr/bin/security", "find-generic-password", "-s", "Claude Code-credentials", "-w")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, errors.New("it did not answer in time")
	case errors.As(err, &exit) && exit.ExitCode() == notFound:
		return nil, nil
	case errors.As(err, &exit):
		return nil, errors.New("it is locked or refuses: " + exit.Error())
	case err != nil:
		return nil, errors.New("it cannot be asked")
	case len(out) > loginfile.Max:
		return nil, errors.New("its entry is too large")
	}
	return bytes.TrimSpace(out), nil
}
