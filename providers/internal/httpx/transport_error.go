package httpx

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"

	"github.com/sluice-llm/sluice/subjects"
)

// transportError classifies a failure below HTTP: never reached, out of time,
// or cut. Its text names the host and never the URL.
func transportError(ctx context.Context, r *Request, err error) *subjects.Error {
	if over(ctx) {
		return ended(ctx)
	}
	host := r.host()
	var own *subjects.Error
	var noTLS tls.RecordHeaderError
	switch {
	case errors.As(err, &own):
		return own
	case errors.Is(err, errTooLarge):
		return subjects.Errorf(subjects.KindProvider, "the answer is above %d MiB", MaxBody>>20)
	case errors.As(err, &noTLS) && string(noTLS.RecordHeader[:]) == "HTTP/":
		return subjects.Errorf(subjects.KindProviderUnavailable, "%s speaks HTTP, not HTTPS; correct the base URL", host).WithCause(err)
	}
	if why := unreachable(err); why != "" {
		return subjects.Errorf(subjects.KindProviderUnavailable, "cannot connect to %s: %s", host, why).WithCause(err)
	}
	return subjects.Errorf(subjects.KindProvider, "the connection to %s was cut before the answer was whole", host).WithCause(err)
}

// over reports whether ctx has ended. A socket's deadline, which is ctx's, may be
// noticed a moment before ctx's own timer.
func over(ctx context.Context) bool {
	if at, ok := ctx.Deadline(); ok && time.Until(at) <= 0 {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

// ended is the error of a context that is over. A cause that is an *Error is
// what ended it.
func ended(ctx context.Context) *subjects.Error {
	var own *subjects.Error
	if cause := context.Cause(ctx); errors.As(cause, &own) {
		return own
	}
	return subjects.AsError(ctx.Err())
}

// unreachable says why no connection was made; "" when one was.
func unreachable(err error) string {
	var (
		dns   *net.DNSError
		op    *net.OpError
		cert  *tls.CertificateVerificationError
		noTLS tls.RecordHeaderError
		alert tls.AlertError
	)
	switch {
	case errors.As(err, &dns):
		return "the host name is not known"
	case errors.As(err, &cert):
		return "its certificate is not trusted"
	case errors.As(err, &noTLS), errors.As(err, &alert):
		return "the TLS handshake failed"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect"):
		if op.Timeout() {
			return "no answer in time"
		}
		return "no route to it"
	}
	return ""
}
