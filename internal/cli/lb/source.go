package lb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/control/discovery"
)

// sourceFlags are the flags of a configuration that comes from a server.
type sourceFlags struct {
	url, node, tokenFile, caFile, state string
	write                               bool
}

func (f *sourceFlags) add(cmd *cobra.Command) {
	set := cmd.Flags()
	set.StringVar(&f.url, "source", "", "config discovery service that has the configuration instead of a file: https://HOST:PORT, http://HOST:PORT or unix:/path")
	set.StringVar(&f.node, "node", "", "source: name of the node whose configuration it is (default: the name of this machine)")
	set.StringVar(&f.tokenFile, "source-token-file", "", "source: file with the bearer token for the service; read for each request")
	set.StringVar(&f.caFile, "source-ca-file", "", "source: PEM file with the authorities of the service's certificate (default: those of the system)")
	set.StringVar(&f.state, "state", "", "source: file that keeps the last valid configuration for a restart while the service is away")
	set.BoolVar(&f.write, "write", false, "write each run-time change (weir lb set, add, remove, apply) to the configuration file, with its comments")
	cli.CompleteFlag(cmd, "source", cli.Schemes("https://", "http://", "unix:/"))
	cli.CompleteFlag(cmd, "source-token-file", cli.Files)
	cli.CompleteFlag(cmd, "source-ca-file", cli.FilesOf("pem", "crt"))
	cli.CompleteFlag(cmd, "state", cli.FilesOf("yaml", "yml"))
}

// args are the arguments: a file or a source.
func (f *sourceFlags) args(file *cli.ConfigFile) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if f.url == "" {
			for _, name := range []string{"node", "source-token-file", "source-ca-file", "state"} {
				if cmd.Flags().Changed(name) {
					return cli.UsageError(fmt.Errorf("--%s is of a configuration from a server; add --source URL", name))
				}
			}
			return file.Required(cmd, args)
		}
		if err := file.Args(cmd, args); err != nil {
			return err
		}
		if f.write {
			return cli.UsageError(errors.New("--write is of a configuration file; with --source the server has the configuration"))
		}
		if file.Path != "" {
			return cli.UsageError(fmt.Errorf("two configurations, %s and --source %s; name one", file.Path, f.url))
		}
		return nil
	}
}

// origin is where the configuration comes from: a file, or a server.
type origin struct {
	file    *config.File
	text    []byte // of the file, as it was read first
	watcher *discovery.Watcher
	loop    *control.Loop // set by first
	log     *slog.Logger
}

func (f *sourceFlags) open(path string, log *slog.Logger) (*origin, error) {
	o := &origin{log: log}
	if f.url == "" {
		o.file = config.NewFile(path)
		return o, nil
	}
	at, err := discovery.ParseOrigin(f.url)
	if err != nil {
		return nil, fmt.Errorf("--source: %w", err)
	}
	node := f.node
	if node == "" {
		if node, err = os.Hostname(); err != nil {
			return nil, fmt.Errorf("--node: %w", err)
		}
	}
	o.watcher = &discovery.Watcher{
		Origin: at, Node: node, TokenFile: f.tokenFile, CAFile: f.caFile, StateFile: f.state, Log: log,
		Apply: func(text []byte) (uint64, error) { return o.loop.Receive(at.String(), text) },
	}
	if f.state == "" {
		log.Warn("without --state, a restart while the config discovery service is away serves nothing")
	}
	return o, o.watcher.Check()
}

func (o *origin) name() string {
	if o.watcher != nil {
		return o.watcher.Origin.String()
	}
	return o.file.Path()
}

// status is nil for a file.
func (o *origin) status() func() v1.ConfigSource {
	if o.watcher == nil {
		return nil
	}
	return o.watcher.Status
}

// first applies the file, or what a run before this one kept of the server's. Without the latter the loop waits for the server.
func (o *origin) first(loop *control.Loop) error {
	o.loop = loop
	if o.watcher != nil {
		restored, err := o.watcher.Restore()
		switch {
		case err != nil:
			o.log.Error("the last configuration cannot be used; waiting for the service", "error", err)
		case restored:
			o.log.Info("the last configuration is in force until the service sends a newer one", "version", o.watcher.Status().Version)
		}
		return nil
	}
	var err error
	o.text, err = loop.LoadFile(o.file)
	if bad := (*config.Error)(nil); errors.As(err, &bad) || err != nil && o.text == nil {
		return cli.UsageError(err)
	}
	return err // of a valid file, the machine refuses it: an address is in use, a privilege is missing
}

// reload is called at SIGHUP.
func (o *origin) reload() <-chan struct{} {
	if o.watcher != nil {
		o.log.Info("SIGHUP: the configuration is that of the service, there is no file to read")
		return nil
	}
	return o.file.Reload()
}

// run follows the file or the server until ctx ends.
func (o *origin) run(ctx context.Context) error {
	if o.watcher == nil {
		return o.loop.Run(ctx, o.file, o.text)
	}
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { _ = o.watcher.Run(ctx) }) // it returns nil when ctx ends, and at no other time
	return o.loop.Run(ctx, nil, nil)
}
