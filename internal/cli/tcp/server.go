package tcp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/tcpscale"
	"github.com/weir-lb/weir/internal/tcpscale/stats"
)

type tcpServerFlags struct {
	listen      []string
	workers     workerCount
	connections int
	config      tcpscale.ServerConfig
	asJSON      bool
	quiet       bool
	stats       tcpFeedFlags
}

func newTCPServerCommand() *cobra.Command {
	var f tcpServerFlags
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Hold connections, answer their heartbeats, and count them",
		Long: `Accept the connections of 'weir tcp client' and answer its heartbeats, in several processes that share each port. A client
that is silent for as many periods as it announced is evicted. Streams of single zero bytes (the original tester's, or
'weir tcp client --plain') are counted and never answered.

SIGUSR1 drains: nothing more is accepted, each client is sent away, and the server ends when all are gone.
Exit codes: 0 ended by an interrupt or drained, 1 something broke, 2 wrong usage.`,
		Example: `  weir tcp server --listen :10000
  weir tcp server --listen :10000,:10001 --connections 200000 --zone a
  weir tcp server --listen 127.0.0.1:10000 --workers 1 --json | jq .connections`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runTCPServer(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.listen, "listen", []string{":10000"}, "addresses to listen on, such as :10000 or 192.0.2.1:10000,:10001; port 0 is one that is free")
	flags.Var(&f.workers, "workers", "processes; auto: as many as --connections needs with the open-file limit, at least one for each processor")
	flags.IntVar(&f.connections, "connections", 100000, "how many are expected, for --workers auto")
	flags.StringVar(&f.config.ID, "id", "", "name that clients see in their distribution, at most 32 bytes (default HOST-PID)")
	flags.StringVar(&f.config.Zone, "zone", "", "zone that clients see, at most 20 bytes")
	flags.IntVar(&f.config.Backlog, "backlog", 4096, "accept queue of each listener; net.core.somaxconn bounds it")
	cli.DurationVar(flags, &f.config.PlainTimeout, "plain-timeout", 2*time.Minute, "evict who announced no period and is silent for so long; 0: never")
	flags.BoolVar(&f.asJSON, "json", false, "print a report as a JSON line every second")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, cli.QuietUsage)
	f.stats.add(cmd)
	return cmd
}

type tcpServer struct {
	*tcpscale.ServerGroup
	feed     *stats.Feed
	progress *tcpProgress
}

func runTCPServer(cmd *cobra.Command, f tcpServerFlags) error {
	workers, err := int(f.workers), error(nil)
	if f.config.Listen, err = listenAddresses(f.listen); err != nil {
		return cli.UsageError(err)
	}
	if f.connections < 1 {
		return cli.UsageError(fmt.Errorf("--connections %d: at least 1", f.connections))
	}
	if f.config.ID == "" {
		f.config.ID = defaultTCPName()
	}
	if err := f.config.Validate(); err != nil {
		return cli.UsageError(err)
	}
	if workers == 0 {
		files, err := tcpscale.RaiseFiles()
		if err != nil {
			return err
		}
		// The kernel spreads by hash: a few in a hundred more than the even share.
		workers = max(tcpscale.WorkersFor(f.connections+f.connections/25, files), runtime.NumCPU())
	}
	worker, err := measuring.TCPWorkers(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	progress := newTCPProgress(cmd.ErrOrStderr())
	feed, err := f.stats.open(progress.say)
	if err != nil {
		return err
	}
	defer feed.Close()
	group, err := tcpscale.StartServer(worker, f.config, workers)
	if err != nil {
		return err
	}
	defer group.Close()
	for _, address := range group.Listen {
		fmt.Fprintf(cmd.ErrOrStderr(), "listening on %v, %d workers, id %s\n", address, workers, f.config.ID)
	}
	server := tcpServer{group, feed, progress}
	return server.run(cmd, f)
}

func defaultTCPName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return fmt.Sprintf("%.20s-%d", host, os.Getpid())
}

func (s *tcpServer) run(cmd *cobra.Command, f tcpServerFlags) error {
	drain, stop := signal.NotifyContext(context.Background(), syscall.SIGUSR1)
	defer stop()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-cmd.Context().Done():
			return s.last(cmd, f, s.Stop())
		case <-drain.Done():
			return s.last(cmd, f, s.Drain())
		case <-s.Ended():
			last := s.Report()
			last.Final = true
			s.feed.Post(last)
			return fmt.Errorf("%w; the others were stopped, their connections are gone", s.Err())
		case <-ticker.C:
		}
		r := s.Report()
		s.feed.Post(r)
		if f.asJSON {
			if err := cli.PrintLine(cmd.OutOrStdout(), r); err != nil {
				return err
			}
		}
		if !f.quiet {
			s.progress.show(r)
		}
	}
}

func (s *tcpServer) last(cmd *cobra.Command, f tcpServerFlags, r tcpscale.Report) error {
	s.progress.end()
	r.Final = true
	s.feed.Post(r)
	if err := s.Err(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if f.asJSON {
		return cli.PrintLine(cmd.OutOrStdout(), r)
	}
	return writeTCPReport(cmd.OutOrStdout(), &r)
}
