package config

import (
	"fmt"
	"regexp"
	"strings"
)

// Bounds on ${NAME} in one value, and in all values of a file, in bytes.
const (
	maxText     = 64 << 10
	maxExpanded = 1 << 20
)

// referenceForm is what stands behind the $ of a reference.
const referenceForm = `\{([A-Za-z_][A-Za-z0-9_]*)(:-([^}]*))?\}`

var (
	reference    = regexp.MustCompile("^" + referenceForm)
	variableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)
)

// hasReference reports whether expand would change text or refuse it.
func hasReference(text string) bool { return strings.Contains(text, "${") }

// expand puts the environment's values in the place of ${NAME} and
// ${NAME:-default}; the default also stands in for an empty value. $${ is a
// literal ${, and a $ before anything else is itself. problem is not empty
// when that cannot be done.
func expand(text string, env environ) (out, problem string) {
	var b strings.Builder
	for {
		i := strings.Index(text, "${")
		if i < 0 {
			break
		}
		if i > 0 && text[i-1] == '$' {
			b.WriteString(text[:i] + "{")
			text = text[i+2:]
			continue
		}
		b.WriteString(text[:i])
		m := reference.FindStringSubmatch(text[i+1:])
		if m == nil {
			return "", "holds a ${ that is no ${NAME} or ${NAME:-default}; write $${ for a literal ${"
		}
		val, problem := lookUp(m, env)
		if problem != "" {
			return "", problem
		}
		b.WriteString(val)
		if b.Len() > maxText {
			return "", fmt.Sprintf("is longer than %d bytes with its variables", maxText)
		}
		text = text[i+1+len(m[0]):]
	}
	b.WriteString(text)
	return b.String(), ""
}

// lookUp finds the value of one reference: its name, and its default with :-.
func lookUp(m []string, env environ) (val, problem string) {
	val, set := env[m[1]]
	switch {
	case val != "":
		return val, ""
	case m[2] != "":
		return m[3], ""
	case set:
		return "", ""
	}
	if looksSecret(m[1]) || len(m[1]) > 80 {
		return "", fmt.Sprintf("uses a variable that is not set, by a name of %d characters that is not shown", len(m[1]))
	}
	return "", fmt.Sprintf("uses ${%s}, which is not set; export %s, or write ${%s:-default}", m[1], m[1], m[1])
}
