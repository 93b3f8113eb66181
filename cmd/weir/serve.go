package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/web"
)

// serveFlags are shared by commands that stay: --admin, --admin-token-file, --log.
type serveFlags struct {
	admin     string
	tokenFile string
	log       string
}

func (f *serveFlags) add(cmd *cobra.Command, adminAddress string) {
	cmd.Flags().StringVar(&f.admin, "admin", adminAddress, "address of metrics, status and console: HOST:PORT, unix:/path, or empty for none")
	cmd.Flags().StringVar(&f.tokenFile, "admin-token-file", "", "file with the token that opens all of --admin beyond loopback")
	cmd.Flags().StringVar(&f.log, "log", "text", "log format: text or json")
}

// part is one loop of a serving command; it returns nil when ctx ends.
type part func(ctx context.Context) error

// serve runs the parts and, when an address is given, the admin door, until ctx ends or one of them fails; then it
// stops the others and waits for them. hangup (may be nil) is called for each SIGHUP, also
// for one that came while the process started. The first error wins.
func serve(ctx context.Context, flags serveFlags, log *slog.Logger, door admin.Config, hangup func(), parts ...part) error {
	if flags.admin != "" {
		server, err := openAdmin(flags, log, door)
		if err != nil {
			return err
		}
		log.Info("admin", "address", server.Address())
		parts = append(parts, server.Run)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if hangup != nil {
		signalsOf(ctx).hangups.onReload(hangup)
	}
	var group sync.WaitGroup
	failures := make(chan error, len(parts))
	for _, run := range parts {
		group.Go(func() {
			failures <- run(ctx)
			cancel() // one part gone: the rest is of no use
		})
	}
	group.Wait()
	close(failures)
	for err := range failures {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return nil
}

func openAdmin(flags serveFlags, log *slog.Logger, door admin.Config) (*admin.Server, error) {
	door.Page = web.Handler()
	token, err := readToken(flags.tokenFile)
	if err != nil {
		return nil, err
	}
	privilege.WarnKeyFile(log, "admin token", flags.tokenFile)
	door.Address, door.Token = flags.admin, token
	door.Log = cmp.Or(door.Log, log)
	return admin.Open(door)
}
