package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/subjects"
)

const (
	defaultNATSURL = "nats://127.0.0.1:4222"
	dialTimeout    = 5 * time.Second
	// queryTimeout bounds the wait for an answer that costs no tokens.
	queryTimeout = 10 * time.Second
)

// clientFlags say which node to talk to, and as whom. A password is not a
// flag: the process list and the shell's history would have it.
type clientFlags struct {
	NATSURL      string `name:"nats-url" group:"conn" envar:"SLUICE_NATS_URL" default:"nats://127.0.0.1:4222" placeholder:"URL" help:"NATS server of the node; several with commas."`
	User         string `group:"conn" envar:"SLUICE_USER" placeholder:"NAME" help:"NATS user; its password is read from $SLUICE_PASSWORD or --password-file."`
	PasswordFile string `group:"conn" envar:"SLUICE_PASSWORD_FILE" placeholder:"FILE" help:"File whose first line is the password."`
	Creds        string `group:"conn" envar:"SLUICE_CREDS" placeholder:"FILE" help:"NATS credentials file."`
}

// conn is a connection to a node, and a context that ends with it.
type conn struct {
	*subjects.Client
	nc     *nats.Conn
	cancel context.CancelCauseFunc
}

func (c *conn) close() {
	_ = c.nc.FlushTimeout(time.Second) // an llm.cancel may be on its way
	c.nc.Close()
	c.cancel(nil)
}

// connect connects to the node. The returned context ends with ctx, and when
// the server says that this user may not do what is being done.
func (f *clientFlags) connect(ctx context.Context, a *app, name string, more ...nats.Option) (context.Context, *conn, error) {
	shown, err := redactURLs(f.NATSURL)
	if err != nil {
		return ctx, nil, err
	}
	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	opts, err := f.options(ctx, a.env)
	if err != nil {
		cancel(nil)
		return ctx, nil, err
	}
	opts = append(opts, nats.Name("sluice "+name), nats.ClosedHandler(func(*nats.Conn) {
		cancel(failf(subjects.KindProviderUnavailable, "the connection to the node was lost; `sluice health` says whether it is back"))
	}), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			cancel(failf(subjects.KindAuth, "this NATS user may not do that: %s; use another with --user or --creds", permissionText(err)))
		}
	}))
	nc, err := nats.Connect(f.NATSURL, append(opts, more...)...)
	if err != nil {
		cancel(nil)
		return ctx, nil, connectError(caller, shown, err)
	}
	return ctx, &conn{Client: subjects.NewClient(nc), nc: nc, cancel: cancel}, nil
}

func (f *clientFlags) options(ctx context.Context, env environ) ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Timeout(dialTimeout),
		nats.NoReconnect(),
		nats.SetCustomDialer(ctxDialer{ctx}),
	}
	if f.Creds != "" {
		if _, err := os.Stat(f.Creds); err != nil {
			return nil, failf(subjects.KindValidation, "--creds: %v", err)
		}
		opts = append(opts, nats.UserCredentials(f.Creds))
	}
	user := f.User
	if user != "" {
		password, err := f.password(env)
		if err != nil {
			return nil, err
		}
		opts = append(opts, nats.UserInfo(user, password))
	} else if u, err := url.Parse(f.NATSURL); err == nil && u.User != nil {
		user = u.User.Username()
	}
	// A user of the built-in nats.conf may listen on its own inboxes only.
	if user != "" && subjects.Token(user) == user {
		opts = append(opts, nats.CustomInboxPrefix("_INBOX."+user))
	}
	return opts, nil
}

// password reads the password of --user. It is never part of a message.
func (f *clientFlags) password(env environ) (string, error) {
	if f.PasswordFile == "" {
		return env.get("SLUICE_PASSWORD"), nil
	}
	b, err := os.ReadFile(f.PasswordFile)
	if err != nil {
		return "", failf(subjects.KindValidation, "--password-file: %v", err)
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	return string(bytes.TrimSuffix(line, []byte("\r"))), nil
}

// ctxDialer dials until ctx ends.
type ctxDialer struct{ ctx context.Context }

// Dial implements nats.CustomDialer.
func (d ctxDialer) Dial(network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	return dialer.DialContext(d.ctx, network, address)
}

// redactURLs checks a comma-separated list of server URLs and returns it
// without passwords.
func redactURLs(list string) (string, error) {
	var shown []string
	for s := range strings.SplitSeq(list, ",") {
		s = strings.TrimSpace(s)
		if !strings.Contains(s, "://") {
			s = "nats://" + s
		}
		u, err := url.Parse(s)
		if err != nil || u.Hostname() == "" { // the error has the URL, the URL may have a password
			return "", usagef("--nats-url is not a URL such as %s", defaultNATSURL)
		}
		shown = append(shown, u.Redacted())
	}
	return strings.Join(shown, ","), nil
}

func connectError(ctx context.Context, shown string, err error) error {
	switch {
	case ctx.Err() != nil:
		return failf(subjects.KindCancelled, "interrupted while connecting to %s", shown)
	case errors.Is(err, nats.ErrNoServers):
		return failf(subjects.KindProviderUnavailable,
			"no node at %s (connection refused); start one with `sluice serve`, or name another with --nats-url", shown)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return failf(subjects.KindAuth,
			"%s does not accept this user; give --user with $SLUICE_PASSWORD or --password-file, or --creds", shown)
	case errors.Is(err, nats.ErrTimeout):
		return failf(subjects.KindTimeout, "no answer from %s within %s; is it a NATS server?", shown, durationText(dialTimeout))
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return failf(subjects.KindProviderUnavailable, "cannot find the host of %s: %s", shown, dns.Err)
	}
	return failf(subjects.KindProviderUnavailable, "cannot connect to %s: %v", shown, err)
}

// permissionText is what the server says of a permission violation, without its prefix.
func permissionText(err error) string {
	text := err.Error()
	if i := strings.LastIndex(text, "ermissions Violation for "); i >= 0 {
		text = text[i+len("ermissions Violation for "):]
	}
	return text
}

// orCause returns why ctx ended where err only says that it did, or that the
// connection has.
func orCause(ctx context.Context, err error) error {
	var p *plainError
	if errors.Is(err, nats.ErrConnectionClosed) {
		<-ctx.Done() // the handler of the closed connection is about to say so
	}
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &p) {
		return p
	}
	return err
}

// query asks the node one question and returns its answer as it came.
func (f *clientFlags) query(ctx context.Context, a *app, name, subject string, in any) ([]byte, error) {
	defer a.spin("waiting for the node")()
	ctx, c, err := f.connect(ctx, a, name)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.query(ctx, subject, in)
}

// query asks one question over a connection that is there.
func (c *conn) query(ctx context.Context, subject string, in any) (_ []byte, err error) {
	m := &subjects.Msg{Subject: subject}
	if in != nil {
		if m.Data, err = json.Marshal(in); err != nil {
			return nil, err
		}
	}
	qctx, stop := context.WithTimeout(ctx, queryTimeout)
	defer stop()
	reply, err := c.Request(qctx, m)
	if err != nil {
		err = orCause(ctx, err)
		var e *subjects.Error
		if errors.As(err, &e) {
			e.CallID = "" // a question is no call
		}
		return nil, err
	}
	return reply.Data, nil
}

// ask is query with the answer read into out, which is left alone with --json:
// then the answer is printed as it came.
func (f *clientFlags) ask(ctx context.Context, a *app, name, subject string, in, out any) error {
	data, err := f.query(ctx, a, name, subject, in)
	if err != nil {
		return err
	}
	if err := read(subject, data, out); err != nil {
		return err
	}
	if a.json {
		a.printJSON(data)
	}
	return nil
}

// read reads an answer into out.
func read(subject string, data []byte, out any) error {
	if err := json.Unmarshal(data, out); err != nil {
		return failf(subjects.KindProvider, "the answer to %s is not what this version of sluice knows", subject)
	}
	return nil
}

// printJSON prints one JSON value on one line.
func (a *app) printJSON(data []byte) {
	var b bytes.Buffer
	if json.Compact(&b, data) != nil {
		b.Reset()
		b.Write(data)
	}
	fmt.Fprintf(a.out, "%s\n", b.Bytes())
}

// printLines prints lines on stdout.
func (a *app) printLines(lines ...string) {
	for _, l := range lines {
		fmt.Fprintln(a.out, l)
	}
}
