package coap

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
)

// observeFlags are the flags of `weir coap observe`.
type observeFlags struct {
	requestFlags
	count          int
	duration       time.Duration
	refresh        time.Duration
	reject, asJSON bool
}

func newObserveCommand() *cobra.Command {
	var f observeFlags
	cmd := &cobra.Command{
		Use:   "observe URI",
		Short: "Observe a resource: show each of its states (RFC 7641)",
		Long: `Observe a resource over UDP, DTLS, TCP or TLS (coap://, coaps://, coap+tcp://, coaps+tcp://), and show each of its states as it comes.

Notifications that are older than one already shown are left out and counted. Where none comes until Max-Age is over, the client
registers again. Long notifications are fetched in blocks. It ends with --count, --duration or an interrupt, and then informs the
server, or when the server ends it.

The exit code is 0 where the user ended it, 1 where the server did: by an error, by no answer, or because it cannot be observed.`,
		Example: `  weir coap observe coap://localhost:5683/obs
  weir coap observe coap://localhost:5683/obs --count 3 --json
  weir coap observe coaps://localhost:5684/obs-large --duration 1m --refresh 20s`,
		Args: cli.OneURI,
		RunE: func(cmd *cobra.Command, args []string) error { return runObserve(cmd, args[0], &f) },
	}
	f.add(cmd, false)
	flags := cmd.Flags()
	flags.IntVar(&f.count, "count", 0, "end after so many notifications (default never)")
	cli.DurationVar(flags, &f.duration, "duration", 0, "end after this time (default never)")
	cli.DurationVar(flags, &f.refresh, "refresh", 0, "register again at this interval too (default only when Max-Age is over)")
	flags.BoolVar(&f.reject, "reject", false, "end by rejecting a notification instead of by a request")
	flags.BoolVar(&f.asJSON, "json", false, "print a JSON object a line for each notification")
	return cmd
}

func runObserve(cmd *cobra.Command, uri string, f *observeFlags) error {
	cfg, err := f.request(cmd, message.GET, uri)
	if err != nil {
		return cli.UsageError(err)
	}
	if f.count < 0 || f.duration < 0 || f.refresh < 0 {
		return cli.UsageError(fmt.Errorf("--count, --duration and --refresh must not be negative"))
	}
	ctx := cmd.Context()
	if f.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.duration)
		defer cancel()
	}
	conn, err := client.Dial(ctx, uri, client.DialConfig{Security: cfg.Security, AckTimeout: cfg.AckTimeout, Timeout: cfg.Timeout})
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is pending
	var printing error
	var last client.Notification
	err = conn.Observe(ctx, client.ObserveConfig{Request: cfg.Request, Refresh: f.refresh, Reject: f.reject}, func(n client.Notification) bool {
		last = n
		printing = printNotification(cmd, &n, f.asJSON)
		return printing == nil && (f.count == 0 || n.Number < f.count)
	})
	if printing != nil {
		return printing
	}
	if err != nil {
		return fmt.Errorf("%s: %w", uri, err)
	}
	if last.Exchange != nil {
		_, err = responseCode(last.Exchange)
	}
	return err
}

func printNotification(cmd *cobra.Command, n *client.Notification, asJSON bool) error {
	var m message.Message
	if err := message.Parse(n.Response, &m); err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(v1.CoAPNotification{
			Number: n.Number, Time: time.Now().UTC(), Sequence: n.Sequence, Registrations: n.Registrations, Stale: n.Stale, Exchange: exchangeJSON(n.Exchange, &m),
		})
	}
	if n.Number == 1 {
		return n.Print(cmd.OutOrStdout())
	}
	return n.PrintResponse(cmd.OutOrStdout())
}
