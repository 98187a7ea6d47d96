package config

import (
	"encoding"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
)

// masked is what a secret that is set prints as.
const masked = "***"

// NewSecret wraps a key or token. The empty text makes a Secret that is not set.
func NewSecret(text string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{v: &text}
}

var (
	_ fmt.Formatter          = Secret{}
	_ fmt.Stringer           = Secret{}
	_ fmt.GoStringer         = Secret{}
	_ json.Marshaler         = Secret{}
	_ encoding.TextMarshaler = Secret{}
	_ slog.LogValuer         = Secret{}
)

// Reveal returns the text itself. Only the code that sends it calls this.
func (s Secret) Reveal() string {
	if s.v == nil {
		return ""
	}
	return *s.v
}

// IsSet reports whether there is a text.
func (s Secret) IsSet() bool { return s.v != nil }

// String returns ***, or "" when the secret is not set.
func (s Secret) String() string {
	if s.v == nil {
		return ""
	}
	return masked
}

// GoString returns what String does.
func (s Secret) GoString() string { return s.String() }

// Format writes what String returns, whatever the verb and its flags.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText returns what String does.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// MarshalJSON returns what String does, as a JSON string.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// MarshalYAML returns what String does.
func (s Secret) MarshalYAML() (any, error) { return s.String(), nil }

// LogValue returns what String does.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }
