package cli

import (
	"context"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/config"
)

// node is what serve and demo need of a running node.
type node interface {
	NATSURL() string
	HTTPAddr() string
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

// startNode starts a real node.
func startNode(ctx context.Context, o *nodeOptions) (node, error) {
	n, err := sluice.Start(ctx,
		sluice.WithConfigFile(o.ConfigFile), sluice.WithConfig(o.Config), sluice.WithData(o.Data),
		sluice.WithHTTP(o.HTTP), sluice.WithNATSListen(o.NATSListen), sluice.WithNATSConfig(o.NATSConfig),
		sluice.WithNATSURL(o.NATSURL), sluice.WithCreds(o.Creds), sluice.WithProviders(o.Providers),
		sluice.WithLogger(o.Logger), sluice.WithEnviron(o.Environ))
	if err != nil {
		return nil, err // a nil *sluice.Node would be a node that is not nil
	}
	return n, nil
}

func loadConfig(file string, env []string) (*config.Config, error) {
	return config.Load(config.Options{File: file, Environ: env})
}
