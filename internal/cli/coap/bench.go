package coap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// coapBenchFlags are the flags of `weir coap bench`.
type coapBenchFlags struct {
	securityFlags
	load                     client.BenchConfig
	sockets, mode, lines     string
	payload                  int
	json, quiet, allowErrors bool
	from                     []string
}

func newCoapBenchCommand() *cobra.Command {
	var f coapBenchFlags
	cmd := &cobra.Command{
		Use:   "bench URI",
		Short: "Load a CoAP server with thousands of clients and measure its answers",
		Long: `Load a CoAP server over UDP (coap://), DTLS 1.2 with connection ids (coaps://), TCP (coap+tcp://) or TLS (coaps+tcp://).

Each client keeps one POST in flight, over UDP and DTLS a confirmable one with the back-off of RFC 7252. Every second, one line shows the requests so
far and the rate of that second; the percentiles of the round-trip time follow at the end.

--mode observe counts notifications instead. --mode reverse-request and reverse-observe ask the server, by a POST to the URI, for
requests to the clients; they count what the clients have answered, or the notifications that they have sent. --block-size sends
payloads and fetches responses in blocks. --handshake-every ends each session after so many requests and makes another one.

--rebind-every changes the source port of every client (or of --rebind-share of them) at that interval, as a NAT does. With
connection ids no session may be lost by it and no handshake repeated. A client changes its port between two requests; with shared sockets, responses to the other
clients of its socket are lost, and their requests are retransmitted. With several addresses in --from it changes its address too.

Over TCP and TLS each client has a connection, and TCP confirms and repeats: --non, --ack-timeout, --sockets shared, --cid-length,
--no-cid and --rebind-every are refused. A connection counts as a handshake. TLS needs --trust or --trust-all.

The exit code is 1 if a request or a session was lost or a request failed, or, without --no-stop, a handshake failed, unless --allow-errors is given.`,
		Example: `  weir coap bench "coap://localhost:5783/benchmark?rlen=40" --clients 200 --requests 1000
  weir coap bench "coaps://localhost:5784/benchmark?rlen=40" --clients 2000 --requests 10000 --no-stop
  weir coap bench "coaps://localhost:5784/benchmark" --clients 500 --duration 30s --rebind-every 5s --json
  weir coap bench "coap+tcp://localhost:5783/benchmark?rlen=40" --clients 200 --requests 1000
  weir coap bench "coaps+tcp://localhost:5784/benchmark" --trust-all --payload-size 8000 --block-size 4096
  weir coap bench coap://localhost:5783/obs --mode observe --clients 100 --duration 1m
  weir coap bench "coap://localhost:5783/benchmark?rlen=5000" --payload-size 5000 --block-size 1024
  weir coap bench "coap://localhost:5783/reverse-request?req=10&res=feed-CON" --mode reverse-request --requests 1000
  weir coap bench coaps://localhost:5784/benchmark --handshake-every 1 --cipher TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] == "all" {
				return cli.UsageError(errors.New("all tests in a row are a command of their own: weir coap bench-all HOST"))
			}
			return cli.OneURI(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runCoapBench(cmd, args[0], &f) },
	}
	flags := cmd.Flags()
	f.addRequests(flags)
	f.securityFlags.add(flags)
	cli.DurationVar(flags, &f.load.RebindEvery, "rebind-every", 0, "change the clients' source ports at this interval (default never)")
	flags.StringSliceVar(&f.from, "from", nil, "local addresses of the clients; each change takes the next (default: the kernel chooses)")
	flags.Float64Var(&f.load.RebindShare, "rebind-share", 1, "share of the clients that change, 0 to 1")
	cli.DurationVar(flags, &f.load.Pause, "interval", 0, "pause of a client between response and next request")
	cli.DurationVar(flags, &f.load.Spread, "first-within", 0, "time within which the clients send their first requests, evenly (default that of --interval, at most 1s)")
	cli.DurationVar(flags, &f.load.AckTimeout, "ack-timeout", 2*time.Second, "first retransmission, at least (RFC 7252 ACK_TIMEOUT)")
	flags.IntVar(&f.load.Burst, "handshakes-burst", 64, "handshakes under way at a time, per worker; over TCP and TLS by default 32 of all workers")
	addServerPID(flags, &f.load.ServerPID)
	flags.Uint64Var(&f.load.Seed, "seed", 0, "of message ids and back-off (default random)")
	flags.BoolVar(&f.json, "json", false, "print the result as JSON; the progress goes to standard error")
	flags.StringVar(&f.lines, "progress", "weir", "lines of progress: weir, every second; original, every 10 s with a number, as Californium's client prints them; or json, every 100 ms, for programs")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, cli.QuietUsage)
	flags.BoolVar(&f.allowErrors, "allow-errors", false, "exit with 0 also after lost or failed requests")
	return cmd
}

// addRequests adds what the clients request.
func (f *coapBenchFlags) addRequests(flags *pflag.FlagSet) {
	flags.IntVar(&f.load.Clients, "clients", 5, "number of clients")
	flags.IntVar(&f.load.Requests, "requests", 0, "requests per client (default 100, without limit when --duration is given)")
	cli.DurationVar(flags, &f.load.Duration, "duration", 0, "stop after this time")
	flags.BoolVar(&f.load.NoStop, "no-stop", false, "after an error wait a second and go on, with a new handshake if the session is lost")
	flags.BoolVar(&f.load.NON, "non", false, "non-confirmable requests")
	flags.IntVar(&f.payload, "payload-size", 40, "bytes of payload in a request")
	flags.BoolVar(&f.load.Serials, "serials", false, "begin each payload with number and serial number of the client, 4 bytes each, and count answers that begin otherwise as wrong")
	flags.StringVar(&f.sockets, "sockets", string(client.SocketsEach), "each: a source port per client; shared: 16 clients share one")
	flags.IntVar(&f.load.Workers, "workers", 0, "workers (default one per core)")
	flags.StringVar(&f.mode, "mode", string(client.ModeRequest), "what a client does: request, observe, reverse-request or reverse-observe")
	flags.IntVar(&f.load.BlockSize, "block-size", 0, "send payloads and fetch responses in blocks of so many bytes, 16 to 1024, over TCP also a multiple of 1024 (BERT; default: a message each)")
	cli.DurationVar(flags, &f.load.NotifyEvery, "notify-every", 0, "with --mode reverse-observe: between two notifications (default: when the one before was acknowledged)")
	flags.IntVar(&f.load.HandshakeEvery, "handshake-every", 0, "make a new session after so many requests (default never)")
	flags.BoolVar(&f.load.Resume, "resume", false, "resume the session before, where there is one")
}

// addServerPID adds the flag that bench and bench-all share.
func addServerPID(flags *pflag.FlagSet, pid *int) {
	flags.IntVar(pid, "server-pid", 0, "process id of a server on this machine: its processor time per request is shown too, that of its children included")
}

// check refuses what cannot be meant and completes the load.
func (f *coapBenchFlags) check(uri string, given func(flag string) bool) error {
	target, err := client.ParseTarget(uri)
	if err != nil {
		return err
	}
	if target.Stream && !given("ack-timeout") {
		f.load.AckTimeout = 0
	}
	if target.Stream && !given("handshakes-burst") {
		f.load.Burst = 0
	}
	own, err := f.security()
	if err != nil {
		return err
	}
	switch {
	case f.lines != "weir" && f.lines != "original" && f.lines != "json":
		return fmt.Errorf("--progress: %q; use weir, original or json", f.lines)
	case f.payload < 0 || f.payload > 8000:
		return fmt.Errorf("--payload-size: %d is not between 0 and 8000", f.payload)
	case f.load.Clients < 1:
		return fmt.Errorf("--clients: %d; give at least 1", f.load.Clients)
	case f.load.RebindShare <= 0:
		return fmt.Errorf("--rebind-share: %g; give more than 0, or leave --rebind-every out", f.load.RebindShare)
	}
	for _, text := range f.from {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("--from: %w; write addresses of this machine, as 10.0.0.2,10.0.0.3", err)
		}
		f.load.From = append(f.load.From, address)
	}
	f.load.URI, f.load.Sockets, f.load.Mode = uri, client.Sockets(f.sockets), client.Mode(f.mode)
	f.load.Identity, f.load.Secret, f.load.Credentials, f.load.ServerName, f.load.Suites = own.Identity, own.Secret, own.Credentials, own.ServerName, own.Suites
	f.load.CIDLength, f.load.NoCID = own.CIDLength, own.NoCID
	switch f.lines {
	case "original":
		f.load.LiveEvery = 10 * time.Second
	case "json":
		f.load.LiveEvery = 100 * time.Millisecond
	}
	f.load.Payload = []byte(strings.Repeat("weir", f.payload/4+1)[:f.payload])
	return f.load.Validate()
}

// failed reports whether something was lost or refused. A client whose handshake fails is lost, unless it tries again.
func failed(load *client.BenchConfig, s *client.BenchStats) bool {
	return s.Errors+s.LostSessions+s.Wrong > 0 || s.HandshakeErrors > 0 && !load.NoStop
}

// progress returns what prints a line of progress for each snapshot, the first of which says that all clients are connected.
func (f *coapBenchFlags) progress(out io.Writer, begun time.Time) func(client.Snapshot) {
	started, lines := false, 0
	return func(s client.Snapshot) {
		if f.quiet {
			return
		}
		if !started {
			started = true
			setup := time.Since(begun)
			fmt.Fprintln(out, "Benchmark clients, first request successful.")
			fmt.Fprintf(out, "Benchmark clients created. %d ms, %.0f clients/s\n", setup.Milliseconds(), float64(f.load.Clients)/setup.Seconds())
			fmt.Fprintln(out, "Benchmark started.")
			return
		}
		if f.lines == "json" {
			_ = json.NewEncoder(out).Encode(sampleOf(&s)) // where it cannot be written, the result says so
			return
		}
		// The last interval is shorter than the others, so its rate means nothing.
		if s.Period >= time.Second/2 || lines == 0 {
			lines++
			if f.lines == "original" {
				fmt.Fprintf(out, "[%04d]: %s\n", lines, s.Line())
				return
			}
			_ = writeLines(out, s.Line()) // where it cannot be written, the result says so
		}
	}
}

// writeLines writes lines, each filled to the width of a terminal that is narrower.
func writeLines(out io.Writer, text string) error {
	for line := range strings.Lines(text) {
		if err := terminal.Prose(out, strings.TrimSuffix(line, "\n")); err != nil {
			return err
		}
	}
	return nil
}

// sampleOf is the public form of a snapshot.
func sampleOf(s *client.Snapshot) v1.CoAPBenchSample {
	return v1.CoAPBenchSample{
		At: time.Now(), Period: s.Period.Seconds(), Total: s.Total, Max: measure.Millis(s.Max),
		Waiting: measure.Millis(s.Delays.Waiting), Silence: measure.Millis(s.Delays.Silence), Late: measure.Millis(s.Delays.Late),
	}
}

func runCoapBench(cmd *cobra.Command, uri string, f *coapBenchFlags) error {
	if err := f.check(uri, cmd.Flags().Changed); err != nil {
		return cli.UsageError(err)
	}
	out := cmd.OutOrStdout()
	if f.json {
		out = cmd.ErrOrStderr()
	}
	begun := time.Now()
	result, err := client.Bench(cmd.Context(), f.load, f.progress(out, begun))
	if err != nil {
		return err
	}
	if f.json {
		err = json.NewEncoder(cmd.OutOrStdout()).Encode(benchResult(uri, f, begun, &result))
	} else {
		fmt.Fprintln(out)
		var text strings.Builder
		err = errors.Join(result.Print(&text), writeLines(out, text.String()))
	}
	if s := &result.Stats; err == nil && !f.allowErrors && failed(&f.load, s) {
		return fmt.Errorf("%d requests lost, %d answered wrongly, %d failed, %d sessions lost, %d handshakes failed", s.Lost, s.Wrong, s.Failed, s.LostSessions, s.HandshakeErrors)
	}
	return err
}

func benchResult(uri string, f *coapBenchFlags, started time.Time, r *client.BenchResult) v1.CoAPBench {
	processes := []measure.Process{{Name: "client", CPU: r.CPU}}
	if f.load.ServerPID != 0 {
		processes = append(processes, measure.Process{Name: "server", CPU: r.ServerCPU})
	}
	return v1.CoAPBench{
		Result: *(&measure.Result{
			Scenario: "coap-bench", Path: uri, Started: started, Elapsed: r.Elapsed,
			Parameters: map[string]string{
				"clients": strconv.Itoa(f.load.Clients), "sockets": f.sockets, "payload": strconv.Itoa(f.payload),
				"rebind_every": f.load.RebindEvery.String(),
			},
			Requests: r.Stats.Requests, Errors: r.Stats.Errors, Bytes: r.Stats.Requests * uint64(f.payload), Latency: r.RTT, Samples: r.Samples,
			Processes: processes,
		}).Form(),
		Stats: r.Stats, Setup: r.Setup.Seconds(), Handshake: r.Handshake.Form(), Groups: r.Groups,
	}
}
