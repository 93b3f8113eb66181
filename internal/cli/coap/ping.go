package coap

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// pingFlags are the flags of `weir coap ping`.
type pingFlags struct {
	securityFlags
	count               int
	interval            time.Duration
	timeout, ackTimeout time.Duration
	asJSON              bool
}

func newPingCommand() *cobra.Command {
	var f pingFlags
	cmd := &cobra.Command{
		Use:   "ping URI",
		Short: "Ping a CoAP server and show the round-trip times",
		Long: `Send empty confirmable messages, which every CoAP server answers with a reset (RFC 7252 section 4.3), over UDP or
DTLS (coap://, coaps://), and a Ping of RFC 8323 over TCP or TLS (coap+tcp://, coaps+tcp://). No resource of the server is requested.

The exit code is 0 when every ping was answered, 1 else.`,
		Example: `  weir coap ping coap://localhost:5783
  weir coap ping coaps://localhost:5784 --count 3 --interval 100ms --json`,
		Args: cli.OneURI,
		RunE: func(cmd *cobra.Command, args []string) error { return runPing(cmd, args[0], &f) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.count, "count", 1, "how many")
	cli.DurationVar(flags, &f.interval, "interval", time.Second, "from the beginning of a ping to that of the next")
	cli.DurationVar(flags, &f.timeout, "timeout", 5*time.Second, "limit for the handshake, and for each ping")
	cli.DurationVar(flags, &f.ackTimeout, "ack-timeout", 2*time.Second, "first retransmission, at least (RFC 7252 ACK_TIMEOUT)")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	f.add(flags)
	return cmd
}

func runPing(cmd *cobra.Command, uri string, f *pingFlags) error {
	if _, err := client.ParseTarget(uri); err != nil {
		return cli.UsageError(err)
	}
	if f.count < 1 || f.interval < 0 {
		return cli.UsageError(fmt.Errorf("--count %d, --interval %v: give at least 1, and no negative interval", f.count, f.interval))
	}
	own, err := f.security()
	if err != nil {
		return cli.UsageError(err)
	}
	conn, err := client.Dial(cmd.Context(), uri, client.DialConfig{Security: own, Timeout: f.timeout, AckTimeout: f.ackTimeout})
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is pending
	out := v1.CoAPPing{URI: uri, RTT: []float64{}}
	var last error
	for begun := time.Now(); out.Sent < f.count && waitUntil(cmd.Context(), begun.Add(time.Duration(out.Sent)*f.interval)); {
		out.Sent++
		rtt, err := conn.Ping(cmd.Context())
		if err != nil {
			last = err
		} else {
			out.RTT = append(out.RTT, measure.Millis(rtt))
		}
		if !f.asJSON {
			printPing(cmd, conn.Target().Authority(), out.Sent, rtt, err)
		}
	}
	if f.asJSON {
		if err := json.NewEncoder(cmd.OutOrStdout()).Encode(out); err != nil {
			return err
		}
	}
	if last == nil || cmd.Context().Err() != nil {
		return nil
	}
	if f.asJSON || !errors.Is(last, client.ErrNoResponse) {
		return last
	}
	return &cli.ExitError{Code: cli.ExitFailure} // it has been shown
}

func printPing(cmd *cobra.Command, authority string, number int, rtt time.Duration, err error) {
	if err != nil {
		fmt.Fprintf(cmd.OutOrStdout(), "%s: ping %d: %v\n", authority, number, err)
		return
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: ping %d: %.3f ms\n", authority, number, measure.Millis(rtt))
}

// waitUntil waits and reports whether ctx is still on.
func waitUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}
