package cli

import (
	"context"
	"errors"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice/config"
	"github.com/sluice-llm/sluice/subjects"
)

// node is what serve and demo need of a running node.
type node interface {
	NATSURL() string
	HTTPAddr() string
	Client() subjects.Transport
	Conn() *nats.Conn
	Drain(ctx context.Context) error
	Close() error
	Done() <-chan struct{}
	Err() error
}

// nodeOptions is how a node is started.
type nodeOptions struct {
	ConfigFile string
	Config     *config.Config
	Data       string
	// HTTP is the address of the HTTP edge; "" = none.
	HTTP string
	// NATSListen is the address of the embedded server; "none" = in-process only.
	NATSListen string
	NATSConfig string
	NATSURL    string
	Creds      string
	Providers  []string
	Logger     *slog.Logger
	Environ    []string
}

// starter starts a node.
type starter func(ctx context.Context, o *nodeOptions) (node, error)

func startNode(context.Context, *nodeOptions) (node, error) {
	return nil, errors.New("this build has no node")
}

func loadConfig(file string, env []string) (*config.Config, error) {
	return config.Load(config.Options{File: file, Environ: env})
}
