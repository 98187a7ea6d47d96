package actors

import (
	"fmt"

	"github.com/sluice-llm/sluice/subjects"
)

// panicError makes an error of a recovered panic. The value goes to the log by
// its type only where it is not an error or a plain string: it may hold a prompt.
func panicError(p any) error {
	switch v := p.(type) {
	case error:
		return subjects.Errorf(subjects.KindProvider, "internal failure").WithCause(v)
	case string:
		return subjects.Errorf(subjects.KindProvider, "internal failure").WithCause(fmt.Errorf("panic: %s", v))
	}
	return subjects.Errorf(subjects.KindProvider, "internal failure").WithCause(fmt.Errorf("panic of type %T", p))
}
