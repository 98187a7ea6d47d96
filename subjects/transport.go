package subjects

import (
	"context"
	"net/textproto"
)

// Header is a message header: names to values, names as written (NATS headers
// are case-sensitive). A nil Header reads as empty.
type Header map[string][]string

// Get returns the first value of name, or "". A header that a client wrote in
// another case is found too.
func (h Header) Get(name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	if len(h) == 0 {
		return ""
	}
	want := textproto.CanonicalMIMEHeaderKey(name)
	for k, v := range h {
		if len(v) > 0 && textproto.CanonicalMIMEHeaderKey(k) == want {
			return v[0]
		}
	}
	return ""
}

// Set replaces the values of name.
func (h Header) Set(name, value string) { h[name] = []string{value} }

// Msg is one request or reply: what NATS carries, without the connection. The
// receiver owns neither Header nor Data: it reads them and does not keep or
// change them after it returns, unless a function's comment says otherwise.
type Msg struct {
	Subject string
	Header  Header
	Data    []byte
}

// End reports whether m is the end of a reply stream: an empty payload that is
// not an error (the sentinel of NATS request-many).
func (m *Msg) End() bool { return len(m.Data) == 0 && m.Header.Get(HeaderErrorCode) == "" }

// Transport carries requests to Sluice. There are two: Client over a NATS
// connection, and the node's own for its HTTP edge, which saves the copies.
// Both behave the same; tests run over both. Safe for concurrent use.
type Transport interface {
	// Request sends m and returns the single reply, which the caller owns. An
	// error reply is returned as *Error. When ctx ends, a running call is
	// cancelled upstream too and the error is TIMEOUT or CANCELLED.
	Request(ctx context.Context, m *Msg) (*Msg, error)
	// Stream sends m and hands every reply message to yield, in order, until the
	// sentinel, which is not handed on. An error reply, before or after the first
	// message, is returned as *Error; a stream that ends without its sentinel is
	// a PROVIDER_ERROR or, by ctx, TIMEOUT or CANCELLED. An error from yield
	// cancels the call and is returned. A message is valid until yield returns.
	Stream(ctx context.Context, m *Msg, yield func(*Msg) error) error
}
