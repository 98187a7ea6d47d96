package sluice

import (
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/subjects"
)

//go:embed nats.conf
var builtinNATSConf []byte

// The users of nats.conf. A node logs in as userNode; userLocal is whoever
// connects without a name while no password is set.
const (
	userCaller   = "caller"
	userObserver = "observer"
	userAdmin    = "admin"
	userNode     = "node"
	userLocal    = "local"
)

// natsServer is the embedded server.
type natsServer struct {
	srv       *server.Server
	user      string
	password  string
	opts      *server.Options
	jetStream server.JetStreamConfig // as it was started
}

// startNATS starts the embedded server: settings from a file or the built-in
// nats.conf, address and data folder from the node's options. providers are those
// of the configuration.
func startNATS(o *options, storeDir string, providers []string) (*natsServer, error) {
	opts, err := natsOptions(o)
	if err != nil {
		return nil, err
	}
	n := &natsServer{}
	secured, err := n.setUsers(opts, o.getenv)
	if err != nil {
		return nil, err
	}
	guardProviders(opts.Users, providers)
	if err := setListen(opts, o.natsListen, secured); err != nil {
		return nil, err
	}
	opts.NoSigs = true
	opts.NoLog = false
	opts.JetStream = true
	opts.StoreDir = storeDir
	opts.ServerName = "sluice-" + randomHex(4)
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("the embedded NATS server refused its settings: %w", err)
	}
	logger := &natsLogger{log: o.log.With("part", "nats-server")}
	srv.SetLoggerV2(logger, false, false, false)
	n.srv, n.opts = srv, opts
	srv.Start()
	if !srv.ReadyForConnections(10*time.Second) || !srv.JetStreamEnabled() {
		n.stop()
		if why := logger.fatal.Load(); why != nil {
			return nil, fmt.Errorf("the embedded NATS server did not start: %s", *why)
		}
		return nil, fmt.Errorf("the embedded NATS server did not start: JetStream is not available in %s; is the folder writable and the disk not full?", storeDir)
	}
	n.jetStream = *srv.JetStreamConfig()
	n.jetStream.StoreDir = storeDir // the server adds a folder of its own to it
	return n, nil
}

func natsOptions(o *options) (*server.Options, error) {
	file := o.natsConfig
	if file == "" {
		tmp, err := os.CreateTemp("", "sluice-nats-*.conf")
		if err != nil {
			return nil, fmt.Errorf("writing the built-in nats.conf: %w", err)
		}
		defer os.Remove(tmp.Name())
		_, werr := tmp.Write(builtinNATSConf)
		if err := errors.Join(werr, tmp.Close()); err != nil {
			return nil, fmt.Errorf("writing the built-in nats.conf: %w", err)
		}
		file = tmp.Name()
	}
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		return nil, fmt.Errorf("--nats-config %s: %w", filepath.Base(file), err)
	}
	return opts, nil
}

// setUsers gives the roles their passwords from the environment, and says
// whether callers must log in.
func (n *natsServer) setUsers(opts *server.Options, getenv func(string) string) (secured bool, err error) {
	switch {
	case len(opts.TrustedOperators) > 0 || len(opts.Nkeys) > 0 || len(opts.Accounts) > 0:
		return false, errors.New("--nats-config: operator mode, nkeys and accounts are for a server of your own: run it and give --nats-url")
	case opts.Username != "":
		n.user, n.password = opts.Username, opts.Password
		return true, nil
	case opts.Authorization != "":
		return false, errors.New("--nats-config: a token cannot tell roles apart; use users, as the built-in nats.conf does")
	}
	users := opts.Users[:0]
	for _, u := range opts.Users {
		if u.Password == "" {
			u.Password = getenv("SLUICE_" + strings.ToUpper(u.Username) + "_PASSWORD")
		}
		secured = secured || u.Password != "" && u.Username != userNode
		if u.Password != "" || u.Username == userLocal || u.Username == userNode {
			users = append(users, u)
		}
	}
	opts.Users = nil
	for _, u := range users {
		switch {
		case u.Username == userLocal && secured:
			continue
		case u.Password == "":
			u.Password = randomHex(16)
		}
		if u.Username == userLocal {
			opts.NoAuthUser = userLocal
		}
		if u.Username == userNode {
			n.user, n.password = u.Username, u.Password
		}
		opts.Users = append(opts.Users, u)
	}
	if n.user == "" && len(opts.Users) > 0 {
		n.user, n.password = userNode, randomHex(16)
		opts.Users = append(opts.Users, &server.User{Username: n.user, Password: n.password})
	}
	return secured, nil
}

// anyProvider is the subject of every provider's calls.
const anyProvider = "llm.provider.*.complete"

// guardProviders keeps the calls of the configuration's providers from whoever may
// answer those of outside ones: nats.conf can name the built-in ones only.
func guardProviders(users []*server.User, providers []string) {
	for _, u := range users {
		if u.Permissions == nil || u.Permissions.Subscribe == nil || !slices.Contains(u.Permissions.Subscribe.Allow, anyProvider) {
			continue
		}
		for _, id := range providers {
			if s := subjects.Provider(id); !slices.Contains(u.Permissions.Subscribe.Deny, s) {
				u.Permissions.Subscribe.Deny = append(u.Permissions.Subscribe.Deny, s)
			}
		}
	}
}

// guard keeps the calls of providers that the configuration adds while the node
// runs from whoever may answer those of outside ones.
func (n *natsServer) guard(providers []string) error {
	opts := n.opts.Clone()
	guardProviders(opts.Users, providers)
	if err := n.srv.ReloadOptions(opts); err != nil {
		return err
	}
	n.opts = opts
	return nil
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// setListen sets the address; another than loopback needs passwords.
func setListen(opts *server.Options, listen string, secured bool) error {
	if listen == "none" {
		opts.DontListen = true
		return nil
	}
	host, port, err := splitAddr("--nats-listen", listen)
	if err != nil {
		return err
	}
	if !secured && !loopback(host) {
		return fmt.Errorf("--nats-listen %s: listening beyond loopback needs passwords: set SLUICE_CALLER_PASSWORD (and SLUICE_OBSERVER_PASSWORD, SLUICE_ADMIN_PASSWORD, SLUICE_PROVIDER_PASSWORD, SLUICE_HOOK_PASSWORD) or listen on 127.0.0.1", listen)
	}
	if port != 0 {
		l, err := net.Listen("tcp", listen)
		if err != nil {
			return addrError("--nats-listen", listen, err)
		}
		_ = l.Close()
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	opts.Host, opts.Port = host, port
	return nil
}

func splitAddr(flag, addr string) (string, int, error) {
	host, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("%s %q: host:port is needed, such as 127.0.0.1:4222", flag, addr)
	}
	port, err := strconv.Atoi(p)
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("%s %q: the port must be a number from 0 (any free one) to 65535", flag, addr)
	}
	return host, port, nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func addrError(flag, addr string, err error) error {
	if isAddrInUse(err) {
		return fmt.Errorf("%s %s: the port is taken, perhaps by another sluice; stop it or choose another address", flag, addr)
	}
	return fmt.Errorf("%s %s: cannot listen there: %w", flag, addr, err)
}

// connect makes one of the node's own connections, inside the process.
func (n *natsServer) connect(opts ...nats.Option) (*nats.Conn, error) {
	opts = append(opts, nats.InProcessServer(n.srv))
	if n.user != "" {
		opts = append(opts, nats.UserInfo(n.user, n.password))
	}
	return nats.Connect("", opts...)
}

// interest reports whether anybody listens on a subject.
func (n *natsServer) interest(subject string) bool {
	return n.srv.GlobalAccount().Interest(subject) > 0
}

// connected reports whether a client's connection is there.
func (n *natsServer) connected(cid uint64) bool { return n.srv.GetClient(cid) != nil }

// revive starts JetStream anew: after a failed write its store refuses all later
// ones, also when the cause is gone.
func (n *natsServer) revive() error {
	if n.srv.JetStreamEnabled() { // it is not, where an earlier revival failed half-way
		if err := n.srv.DisableJetStream(); err != nil {
			return err
		}
	}
	cfg := n.jetStream
	return n.srv.EnableJetStream(&cfg)
}

func (n *natsServer) stop() {
	n.srv.Shutdown()
	n.srv.WaitForShutdown()
}

// natsLogger sends the server's warnings and errors to slog.
type natsLogger struct {
	log   *slog.Logger
	fatal atomic.Pointer[string]
}

func (l *natsLogger) Noticef(format string, v ...any) { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l *natsLogger) Errorf(format string, v ...any)  { l.log.Error(fmt.Sprintf(format, v...)) }
func (l *natsLogger) Debugf(string, ...any)           {}
func (l *natsLogger) Tracef(string, ...any)           {}

// Warnf leaves out the advice to hash passwords: ours come from the environment
// and stay in memory.
func (l *natsLogger) Warnf(format string, v ...any) {
	if s := fmt.Sprintf(format, v...); !strings.HasPrefix(s, "Plaintext passwords detected") {
		l.log.Warn(s)
	}
}

// Fatalf keeps the reason for the node's own error; it does not exit.
func (l *natsLogger) Fatalf(format string, v ...any) {
	s := fmt.Sprintf(format, v...)
	l.fatal.Store(&s)
	l.log.Error(s)
}
