package tcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/tcpscale/stats"
	"github.com/weir-lb/weir/web"
)

// tcpStatsFlags are the flags of `weir tcp stats`.
type tcpStatsFlags struct {
	listen, tokenFile string
	log               string
	stats.Config
}

func newTCPStatsCommand() *cobra.Command {
	f := &tcpStatsFlags{}
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show what TCP servers and clients hold together: a live page, JSON, Prometheus",
		Long: `Show what TCP servers and clients hold together.

Servers and clients started with --stats report here once a second. The page lists every server and how many clients and
connections each has, every client, which client is connected where, both ends side by side, failures with their remedy, and
histories of an hour by seconds and a day by ten seconds. It needs no other host. Programs of the original tester may report
too (POST /api/ServerStatistics).

By default only this machine reaches it; --listen :9190 is every address. Who reads needs a token: that of --token-file, or else one
that is made at the start and printed in the address of the page. With --token-file reporters need it too; without, who reaches
the port can report. Metrics and the probe /livez are open without --token-file.`,
		Example: `  weir tcp stats
  weir tcp stats --listen :8080 --expect 100000
  weir tcp stats --listen :8080 --token-file /run/secrets/token
  curl -s -H "Authorization: Bearer $(cat /run/secrets/token)" http://127.0.0.1:9190/api/state
  curl -sN -H "Authorization: Bearer $(cat /run/secrets/token)" http://127.0.0.1:9190/api/events`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return cli.UsageError(fmt.Errorf("no argument is wanted, got %q", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return runTCPStats(cmd, f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:9190", "address of page and reports, HOST:PORT, or :PORT for every address")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with a token, at least 16 characters, that reports and readers need; a browser requests it as the password of any user (default: readers need one that is made at the start and printed)")
	flags.IntVar(&f.Expect, "expect", 0, "connections that should come, drawn with what is there; 0: none")
	flags.IntVar(&f.MaxReporters, "max-reporters", 256, "servers and clients that are kept; 300 kB each after a day")
	flags.IntVar(&f.MaxWatchers, "max-watchers", 32, "pages that are open at once")
	cli.DurationVar(flags, &f.SilentAfter, "silent-after", 10*time.Second, "without a report for so long a reporter counts no more; the original's programs: at least 1m")
	cli.DurationVar(flags, &f.ForgetAfter, "forget-after", 10*time.Minute, "without a report for so long it is forgotten, with its history")
	flags.StringVar(&f.log, "log", "text", "log format: text or json")
	return cmd
}

func (f *tcpStatsFlags) check() error {
	switch {
	case f.Expect < 0 || f.Expect > 1<<30:
		return fmt.Errorf("--expect %d: want 0 to %d", f.Expect, 1<<30)
	case f.MaxReporters < 1 || f.MaxReporters > 4096:
		return fmt.Errorf("--max-reporters %d: want 1 to 4096", f.MaxReporters)
	case f.MaxWatchers < 1 || f.MaxWatchers > 1024:
		return fmt.Errorf("--max-watchers %d: want 1 to 1024", f.MaxWatchers)
	case f.SilentAfter < time.Second:
		return fmt.Errorf("--silent-after %s: want at least 1s, reports come once a second", f.SilentAfter)
	case f.ForgetAfter < f.SilentAfter:
		return fmt.Errorf("--forget-after %s is shorter than --silent-after %s", f.ForgetAfter, f.SilentAfter)
	}
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return fmt.Errorf("--listen %q: write HOST:PORT, such as 127.0.0.1:9190", f.listen)
	}
	return nil
}

func runTCPStats(cmd *cobra.Command, f *tcpStatsFlags) error {
	log, err := cli.NewLogger(cmd.ErrOrStderr(), f.log)
	if err != nil {
		return cli.UsageError(err)
	}
	if err := f.check(); err != nil {
		return cli.UsageError(err)
	}
	if f.Token, err = cli.ReadToken(f.tokenFile); err != nil {
		return cli.UsageError(fmt.Errorf("--token-file: %w", err))
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	f.Page, f.Log = web.TCPStats(), log
	page := "http://" + listener.Addr().String() + "/"
	if f.Token == "" {
		f.Token, f.OpenReports = rand.Text(), true
		page += "?token=" + f.Token
		if at, ok := listener.Addr().(*net.TCPAddr); ok && at.IP.IsLoopback() {
			f.HostAllowed = func(host string) bool { return admin.HostAllowed(host) } // a web page may not report by rebinding a name
		} else {
			log.Warn("who reaches this port can report; --token-file requests a secret", "address", listener.Addr().String())
		}
	}
	log.Info("statistics", "page", page)
	service := stats.New(f.Config)
	return cli.RunTogether(cmd.Context(), cli.Notify(log, service.Respond), func(ctx context.Context) error { return service.Serve(ctx, listener) })
}

// serveTCPStats serves a page of one run and returns what reports to it. After the feed is closed, stop ends the service.
func serveTCPStats(ctx context.Context, address string, expect int, say func(format string, args ...any)) (_ *stats.Feed, stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("--serve-stats: %w", err)
	}
	token := rand.Text()
	sender, err := stats.NewSender(listener.Addr().String(), token)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("--serve-stats: %w", err), listener.Close())
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // an interrupt ends the run first
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := stats.New(stats.Config{Page: web.TCPStats(), Expect: expect, Token: token}).Serve(ctx, listener); err != nil {
			say("--serve-stats: %v", err) // the run is worth more than its page
		}
	}()
	say("statistics page on http://%s/?token=%s", listener.Addr(), token)
	return stats.NewFeed(sender, say), func() { cancel(); <-ended }, nil
}

// tcpFeedFlags say where servers and clients report to.
type tcpFeedFlags struct{ to, tokenFile string }

func (f *tcpFeedFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.to, "stats", "", "HOST:PORT of a 'weir tcp stats' to report to")
	flags.StringVar(&f.tokenFile, "stats-token-file", "", "file with the token of --stats")
}

// open returns what passes reports on; nil without --stats. Nothing is sent yet, and whether anybody is there does not matter.
func (f *tcpFeedFlags) open(say func(format string, args ...any)) (*stats.Feed, error) {
	token, err := cli.ReadToken(f.tokenFile)
	switch {
	case err != nil:
		return nil, cli.UsageError(fmt.Errorf("--stats-token-file: %w", err))
	case f.to == "" && f.tokenFile != "":
		return nil, cli.UsageError(errors.New("--stats-token-file: a token without --stats is of no use"))
	case f.to == "":
		return nil, nil
	}
	sender, err := stats.NewSender(f.to, token)
	if err != nil {
		return nil, cli.UsageError(fmt.Errorf("--stats: %w", err))
	}
	return stats.NewFeed(sender, say), nil
}
