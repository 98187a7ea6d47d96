// Package sluice starts a Sluice node inside a Go program or a test: an
// embedded NATS server (or a connection to one that runs elsewhere), the actors
// behind the llm.> subjects, the usage database, and the HTTP edge.
//
//	node, err := sluice.Start(ctx, sluice.WithData("data"))
//	if err != nil { … }
//	defer node.Close()
//	res, err := subjects.Call(ctx, node.Client(), subjects.ClassInteractive, &subjects.Request{…})
//
// For tests of other programs there is package sluicetest.
package sluice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluice-llm/sluice/actors"
	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/edge"
	"github.com/sluice-llm/sluice/hooks"
	"github.com/sluice-llm/sluice/persistence"
	"github.com/sluice-llm/sluice/providers/registry"
	"github.com/sluice-llm/sluice/routing"
	"github.com/sluice-llm/sluice/subjects"
)

// Version is this version of Sluice.
const Version = "0.1.0"

// Option sets one thing of a node.
type Option func(*options)

type options struct {
	cfg        *config.Config
	configFile string
	environ    []string
	data       string
	http       string
	natsListen string
	natsConfig string
	natsURL    string
	creds      string
	hosts      []string
	log        *slog.Logger

	mock        hooks.MockService
	budget      hooks.BudgetTracker
	sensitivity hooks.SensitivityClassifier
	transport   http.RoundTripper
}

// WithConfig uses a configuration that is loaded already; the environment is then
// not read for the start, and a file that WithConfigFile names is the one that it
// was loaded from: it is followed, and wins where it has changed since.
func WithConfig(c *config.Config) Option { return func(o *options) { o.cfg = c } }

// WithConfigFile reads llm-providers.yaml from path; "" = the built-in default.
func WithConfigFile(path string) Option { return func(o *options) { o.configFile = path } }

// WithEnviron replaces the process's environment (in the form of os.Environ).
func WithEnviron(env []string) Option { return func(o *options) { o.environ = env } }

// WithData sets the data folder, made if missing; default ".data". One node at
// a time may use it.
func WithData(dir string) Option { return func(o *options) { o.data = dir } }

// WithHTTP serves the HTTP edge on host:port; "" (the default) serves none.
// Node.Handler is there in either case.
func WithHTTP(addr string) Option { return func(o *options) { o.http = addr } }

// WithNATSListen lets the embedded server listen on host:port (port 0 = a free
// one); "none" (the default) keeps it inside the process.
func WithNATSListen(addr string) Option { return func(o *options) { o.natsListen = addr } }

// WithNATSConfig reads the embedded server's settings from a file in place of
// the built-in nats.conf.
func WithNATSConfig(path string) Option { return func(o *options) { o.natsConfig = path } }

// WithNATSURL joins a NATS server that runs elsewhere, in place of embedding one.
func WithNATSURL(url string) Option { return func(o *options) { o.natsURL = url } }

// WithCreds logs in there with a credentials file.
func WithCreds(path string) Option { return func(o *options) { o.creds = path } }

// WithProviders hosts only these providers on this node; none = all.
func WithProviders(ids []string) Option { return func(o *options) { o.hosts = ids } }

// WithLogger sets the log; the default logs nothing.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.log = l } }

// WithMockService has the mock provider answer with what m says.
func WithMockService(m hooks.MockService) Option { return func(o *options) { o.mock = m } }

// WithBudgetTracker has b decide whether a call may cost money, in place of the
// configuration's cost_limits and batch_cost_limits. Like the classifier it is
// asked under the timeout and with the onError of the configuration's section
// hooks, and wins over a subject that stands there.
func WithBudgetTracker(b hooks.BudgetTracker) Option { return func(o *options) { o.budget = b } }

// WithSensitivityClassifier has s say how sensitive the content of each call is;
// the configuration's section sensitivity says who may see what.
func WithSensitivityClassifier(s hooks.SensitivityClassifier) Option {
	return func(o *options) { o.sensitivity = s }
}

// WithTransport has t carry the HTTP requests of every provider, in place of
// connections of its own: for an outgoing proxy, a certificate of the house, or a
// test without a network. t must not follow redirects.
func WithTransport(t http.RoundTripper) Option { return func(o *options) { o.transport = t } }

func (o *options) getenv(name string) string {
	value := ""
	for _, kv := range o.environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// Node is a running node. Its methods may be called concurrently.
type Node struct {
	o       options
	cfg     *config.Config
	log     *slog.Logger
	store   *persistence.Store
	nats    *natsServer // nil when the server runs elsewhere
	conn    *nats.Conn  // calls, queries, events
	logConn *nats.Conn  // the usage log
	engine  *actors.Engine
	service *service
	events  *events
	edge    *edge.Server
	http    net.Listener
	reload  *reloader
	// providers are the configured ones and made is what they are made with; after
	// the start they are the reloader's.
	providers registry.Set
	made      registry.Options

	closing sync.Once
	done    chan struct{}
	err     error // set before done is closed
	closers []func()
}

// Start starts a node. It returns when the node answers, or with an error that
// says what to do. ctx bounds the start only.
func Start(ctx context.Context, opts ...Option) (*Node, error) {
	n := &Node{done: make(chan struct{}), o: options{data: ".data", natsListen: "none", environ: os.Environ(), log: slog.New(slog.DiscardHandler)}}
	for _, opt := range opts {
		opt(&n.o)
	}
	n.log = n.o.log
	for _, step := range []func(context.Context) error{n.configure, n.openStore, n.openNATS, n.startEngine, n.startService, n.startEdge} {
		if err := step(ctx); err != nil {
			n.close(nil)
			return nil, err
		}
	}
	return n, nil
}

// onClose remembers what undoes a step of the start; the last comes first.
func (n *Node) onClose(f func()) { n.closers = append(n.closers, f) }

func (n *Node) configure(context.Context) error {
	n.cfg = n.o.cfg
	if n.cfg == nil {
		cfg, err := config.Load(config.Options{File: n.o.configFile, Environ: n.o.environ})
		if err != nil {
			return err
		}
		n.cfg = cfg
	}
	for _, note := range n.cfg.Notes {
		n.log.Warn("configuration", "note", note)
	}
	if err := n.checkHosts(n.cfg); err != nil {
		return err
	}
	if n.o.http != "" {
		host, _, err := splitAddr("--http", n.o.http)
		if err != nil {
			return err
		}
		if !loopback(host) && n.o.getenv("SLUICE_HTTP_TOKEN") == "" {
			return fmt.Errorf("--http %s: listening beyond loopback needs a token that callers send as their API key: set SLUICE_HTTP_TOKEN, or listen on 127.0.0.1", n.o.http)
		}
	}
	return nil
}

func (n *Node) checkHosts(cfg *config.Config) error {
	for _, id := range n.o.hosts {
		if !slices.Contains(cfg.Order, id) {
			return fmt.Errorf("--providers: no provider is called %q; the providers are %s", id, strings.Join(cfg.Order, ", "))
		}
	}
	return nil
}

// openStore opens the database first: its lock tells whether another node uses
// the data folder, which the NATS server would not notice.
func (n *Node) openStore(context.Context) error {
	if err := os.MkdirAll(n.o.data, 0o700); err != nil {
		return fmt.Errorf("--data %s: the folder cannot be made: %w", n.o.data, err)
	}
	store, err := persistence.Open(persistence.Options{Dir: filepath.Join(n.o.data, "usage"), Logger: n.log})
	if err != nil {
		return fmt.Errorf("--data %s: %w", n.o.data, err)
	}
	n.store = store
	n.onClose(func() {
		if err := store.Close(); err != nil {
			n.log.Error("closing the usage database", "error", err)
		}
	})
	return nil
}

func (n *Node) openNATS(ctx context.Context) error {
	var err error
	if n.o.natsURL == "" {
		if n.nats, err = startNATS(&n.o, filepath.Join(n.o.data, "jetstream"), n.cfg.Order); err != nil {
			return err
		}
		n.onClose(n.nats.stop)
	}
	if n.conn, err = n.dial("calls"); err != nil {
		return err
	}
	n.onClose(n.conn.Close)
	if n.logConn, err = n.dial("usage"); err != nil {
		return err
	}
	n.onClose(n.logConn.Close)
	return n.makeStream(ctx, n.cfg)
}

func (n *Node) dial(part string) (*nats.Conn, error) {
	opts := []nats.Option{
		nats.Name("sluice " + part),
		nats.MaxReconnects(-1),
		nats.CustomInboxPrefix(subjects.NodeInbox + "." + randomHex(8)),
		nats.PermissionErrOnSubscribe(true),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			n.log.Error("NATS", "connection", part, "subject", subject, "error", err)
		}),
	}
	if n.nats != nil {
		conn, err := n.nats.connect(opts...)
		if err != nil {
			return nil, fmt.Errorf("connecting to the embedded NATS server: %w", err)
		}
		return conn, nil
	}
	if n.o.creds != "" {
		opts = append(opts, nats.UserCredentials(n.o.creds))
	} else if pw := n.o.getenv("SLUICE_NODE_PASSWORD"); pw != "" {
		opts = append(opts, nats.UserInfo(userNode, pw))
	}
	opts = append(opts, nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
		if err != nil {
			n.log.Warn("NATS connection lost; reconnecting", "connection", part, "error", err)
		}
	}))
	conn, err := nats.Connect(n.o.natsURL, opts...)
	if errors.Is(err, nats.ErrAuthorization) {
		return nil, fmt.Errorf("--nats-url: the server at %s does not let this node in: %s", redactURL(n.o.natsURL), asNode)
	}
	if err != nil {
		return nil, fmt.Errorf("--nats-url: no NATS server answers at %s: %w", redactURL(n.o.natsURL), err)
	}
	return conn, nil
}

// asNode says how a node gets what it needs of another's NATS server.
const asNode = "set SLUICE_NODE_PASSWORD, the same for the node that has the server, or give --creds of a user that may do everything"

// redactURL leaves out what may be a password.
func redactURL(url string) string {
	var out []string
	for _, u := range strings.Split(url, ",") {
		if i := strings.LastIndexByte(u, '@'); i >= 0 {
			scheme, _, _ := strings.Cut(u, "://")
			u = scheme + "://***" + u[i:]
		}
		out = append(out, u)
	}
	return strings.Join(out, ",")
}

// makeStream makes the usage log, or gives the one that is there its bound.
func (n *Node) makeStream(ctx context.Context, cfg *config.Config) error {
	js, err := jetstream.New(n.logConn)
	if err != nil {
		return err
	}
	_, err = js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: subjects.UsageStream, Subjects: []string{subjects.UsageFilter},
		Description: "one record per call; see docs/subjects.md",
		Storage:     jetstream.FileStorage, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		MaxBytes: cfg.Usage.StreamMaxBytes, Duplicates: 2 * time.Minute, AllowDirect: true,
	})
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) {
		return errors.New("--nats-url: that server has no JetStream; Sluice keeps its usage log there: start it with -js")
	}
	if err != nil && errors.Is(n.logConn.LastError(), nats.ErrPermissionViolation) {
		return errors.New("--nats-url: that server does not let this node keep the usage log: " + asNode)
	}
	if err != nil {
		return fmt.Errorf("the usage log (stream %s) cannot be made: %w", subjects.UsageStream, err)
	}
	return nil
}

func (n *Node) startEngine(context.Context) error {
	js, err := jetstream.New(n.logConn)
	if err != nil {
		return err
	}
	n.events = newEvents(n.conn, n.log)
	n.onClose(n.events.stop)
	n.onClose(func() { registry.Close(n.providers) })
	n.reload = newReloader(n)
	o := actors.Options{
		Config: n.cfg, Providers: n.makeProviders, JS: js,
		Mock: n.o.mock, Budget: n.o.budget, Sensitivity: n.o.sensitivity, Store: n.store, Log: n.log,
		Emit: n.events.emit, Version: Version, Hop: subjects.NewClient(n.conn),
		FreeSpace: func() (uint64, bool) { return persistence.FreeBytes(n.o.data) },
		Spill:     filepath.Join(n.o.data, "pending-usage.jsonl"),
	}
	if n.o.cfg == nil {
		o.Reload = n.reload.ask
	}
	if len(n.o.hosts) > 0 {
		o.Hosts = func(id string) bool { return slices.Contains(n.o.hosts, id) }
	}
	if n.nats != nil {
		o.Interest, o.Revive = n.nats.interest, n.nats.revive
	}
	carrier, err := newCourier(n.conn, n.nats)
	if err != nil {
		return err
	}
	n.onClose(carrier.stop)
	o.Outside = registry.Outside(carrier, o.Interest)
	n.engine = actors.NewEngine(o)
	n.onClose(n.engine.Close)
	return nil
}

func (n *Node) makeProviders(mock hooks.MockService) registry.Set {
	n.made = registry.Options{Version: Version, Mock: mock, Transport: n.o.transport}
	n.providers = registry.New(n.cfg, n.made)
	return n.providers
}

func (n *Node) startService(context.Context) error {
	s, err := newService(n.conn, n.engine, n.log, n.hosted())
	if err != nil {
		return fmt.Errorf("the NATS service %s cannot be started: %w", subjects.ServiceName, err)
	}
	n.service = s
	n.onClose(s.stop)
	n.reload.start()
	n.onClose(n.reload.stop)
	return nil
}

func (n *Node) startEdge(context.Context) error {
	n.edge = edge.New(n.Client(), edge.Options{
		Logger: n.log, Version: Version, Token: n.o.getenv("SLUICE_HTTP_TOKEN"),
		ProcessClass: func(p string) string { return routing.Class(n.engine.Config(), p) },
	})
	if n.o.http == "" {
		return nil
	}
	l, err := net.Listen("tcp", n.o.http)
	if err != nil {
		return addrError("--http", n.o.http, err)
	}
	n.http = l
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := n.edge.Serve(l); err != nil {
			n.log.Error("HTTP", "error", err)
			go n.close(fmt.Errorf("the HTTP edge failed: %w", err))
		}
	}()
	n.onClose(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = n.edge.Shutdown(ctx)
		<-served
	})
	return nil
}

// NATSURL is where callers reach the node by NATS; "" when its server does not
// listen.
func (n *Node) NATSURL() string {
	switch {
	case n.nats == nil:
		return redactURL(n.o.natsURL)
	case n.o.natsListen == "none":
		return ""
	}
	return n.nats.srv.ClientURL()
}

// HTTPAddr is the address of the HTTP edge; "" when there is none.
func (n *Node) HTTPAddr() string {
	if n.http == nil {
		return ""
	}
	return n.http.Addr().String()
}

// Handler is the HTTP edge as a handler.
func (n *Node) Handler() http.Handler { return n.edge.Handler() }

// Client carries calls and queries to this node inside the process.
func (n *Node) Client() subjects.Transport { return &local{n.engine, n.engine.Queries()} }

// Conn is one of the node's own connections, with every right. It is closed
// with the node.
func (n *Node) Conn() *nats.Conn { return n.conn }

// Store is the usage database, for queries.
func (n *Node) Store() *persistence.Store { return n.store }

// Drain stops taking calls, waits for the running ones and flushes the usage
// log. Calls that still run when ctx ends are cancelled, and ctx's error is
// returned. Close comes after.
func (n *Node) Drain(ctx context.Context) error {
	n.engine.StopAccepting()
	n.service.leave()
	drained := make(chan error, 1)
	go func() { drained <- n.engine.Drain(ctx) }()
	if n.http != nil {
		_ = n.edge.Shutdown(ctx)
	}
	err := <-drained
	_ = n.conn.FlushTimeout(2 * time.Second)
	return err
}

// Close ends the node at once. Running calls are cancelled.
func (n *Node) Close() error {
	n.close(nil)
	return nil
}

func (n *Node) close(err error) {
	n.closing.Do(func() {
		for i := len(n.closers) - 1; i >= 0; i-- {
			n.closers[i]()
		}
		n.err = err
		close(n.done)
	})
}

// Done is closed when the node has ended.
func (n *Node) Done() <-chan struct{} { return n.done }

// Err says why a node ended by itself; nil after Close. Read it after Done.
func (n *Node) Err() error {
	select {
	case <-n.done:
		return n.err
	default:
		return nil
	}
}

// events publishes events beside the actors, which must not block. When they
// come faster than they go out, the newest are dropped and counted.
type events struct {
	conn    *nats.Conn
	log     *slog.Logger
	queue   chan event
	stopped chan struct{}
	quit    chan struct{}
}

type event struct {
	subject string
	body    any
}

func newEvents(conn *nats.Conn, log *slog.Logger) *events {
	e := &events{conn: conn, log: log, queue: make(chan event, 4096), stopped: make(chan struct{}), quit: make(chan struct{})}
	go e.run()
	return e
}

func (e *events) emit(subject string, body any) {
	select {
	case e.queue <- event{subject, body}:
	default:
		e.log.Warn("event dropped: they come faster than they go out", "subject", subject)
	}
}

func (e *events) run() {
	defer close(e.stopped)
	for {
		select {
		case ev := <-e.queue:
			data, err := json.Marshal(ev.body)
			if err == nil {
				err = e.conn.Publish(ev.subject, data)
			}
			if err != nil {
				e.log.Warn("event not published", "subject", ev.subject, "error", err)
			}
		case <-e.quit:
			return
		}
	}
}

func (e *events) stop() {
	close(e.quit)
	<-e.stopped
}

// hosted lists the providers that this node hosts.
func (n *Node) hosted() []string {
	if len(n.o.hosts) > 0 {
		return n.o.hosts
	}
	return n.cfg.Order
}
