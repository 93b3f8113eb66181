package coap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/measure"
)

// benchTests are the tests of `weir coap bench-all`, in their order.
var benchTests = []string{"con", "separate", "non", "blocks", "observe", "reverse-request", "reverse-observe", "handshakes"}

// benchAllFlags are the flags of `weir coap bench-all`: the variables of Californium's benchmark.sh.
type benchAllFlags struct {
	securityFlags
	tests                                              []string
	plain, secure, udp, tcp                            bool
	plainPort, securePort                              uint16
	path                                               string
	clients, tcpClients, observeClients                int
	requests, requestsLarge, notifies, reverseNotifies int
	payload, payloadMedium, payloadLarge, handshakes   int
	noStop, quiet, allowErrors, json                   bool
	serverPID                                          int
}

func newBenchAllCommand() *cobra.Command {
	var f benchAllFlags
	cmd := &cobra.Command{
		Use:   "bench-all HOST",
		Short: "Load a CoAP server in every way, one after the other, and compare",
		Long: `Load a CoAP server with each of the modes of weir coap bench, over UDP, DTLS, TCP and TLS, as benchmark.sh of Californium does:
confirmable requests with piggybacked and with separate responses, non-confirmable ones, blocks, observation, requests and observations
of the server, and handshakes of each kind that the credentials allow. The flags are the variables of that script.

Over TCP there are no non-confirmable requests, and blocks go several in a message (BERT). TLS needs --trust or --trust-all; without
them there are no tests over TLS.

The tests are con, separate, non, blocks, observe, reverse-request, reverse-observe and handshakes. A test that the server refuses
is shown with its error, and the others go on. The exit code is 1 if one failed or lost something, unless --allow-errors is given.`,
		Example: `  weir coap bench-all localhost --requests 100 --clients 50 --tests con,non,handshakes
  weir coap bench-all device.example --secure=false --tcp=false --notifies 20 --json
  weir coap bench-all localhost --udp=false --trust-all --tests con,blocks,handshakes`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || strings.ContainsAny(args[0], "/ ") {
				return cli.UsageError(errors.New("give one host, such as localhost; its ports have flags"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return runBenchAll(cmd, args[0], &f) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.tests, "tests", benchTests, "which tests")
	flags.BoolVar(&f.udp, "udp", true, "over UDP and DTLS (USE_UDP)")
	flags.BoolVar(&f.tcp, "tcp", true, "over TCP and TLS (USE_TCP)")
	flags.BoolVar(&f.plain, "plain", true, "over UDP and TCP (USE_PLAIN)")
	flags.BoolVar(&f.secure, "secure", true, "over DTLS and TLS (USE_SECURE)")
	flags.Uint16Var(&f.plainPort, "plain-port", 5783, "port of coap and coap+tcp (PLAIN_PORT)")
	flags.Uint16Var(&f.securePort, "secure-port", 5784, "port of coaps and coaps+tcp (SECURE_PORT)")
	flags.StringVar(&f.path, "resource-path", "benchmark", "resource of requests and observations (RESOURCE_PATH)")
	flags.IntVar(&f.clients, "clients", 200, "clients over UDP and DTLS (UDP_CLIENTS)")
	flags.IntVar(&f.tcpClients, "tcp-clients", 100, "clients over TCP and TLS (TCP_CLIENTS)")
	flags.IntVar(&f.observeClients, "observe-clients", 100, "clients that observe, or are observed (OBS_CLIENTS)")
	flags.IntVar(&f.requests, "requests", 1000, "requests per client (REQS)")
	flags.IntVar(&f.requestsLarge, "requests-large", 50, "requests per client with large payloads (REQS_LARGE)")
	flags.IntVar(&f.notifies, "notifies", 20, "notifications per client (NOTIFIES)")
	flags.IntVar(&f.reverseNotifies, "reverse-notifies", 100, "requests of the server and notifications to it, per client (REV_NOTIFIES)")
	flags.IntVar(&f.payload, "payload-size", 40, "bytes of payload in requests and responses (PAYLOAD)")
	flags.IntVar(&f.payloadMedium, "payload-medium", 400, "bytes of a notification (PAYLOAD_MEDIUM)")
	flags.IntVar(&f.payloadLarge, "payload-large", 5000, "bytes of payload in blocks (PAYLOAD_LARGE)")
	flags.IntVar(&f.handshakes, "handshakes", 10, "handshakes of each kind per client")
	flags.BoolVar(&f.noStop, "no-stop", true, "go on after an error (USE_NONESTOP)")
	flags.BoolVar(&f.json, "json", false, "print the results as JSON; the progress goes to standard error")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, cli.QuietUsage)
	flags.BoolVar(&f.allowErrors, "allow-errors", false, "exit with 0 also after lost or failed requests")
	addServerPID(flags, &f.serverPID)
	f.add(flags)
	return cmd
}

// benchRun is one test over one transport.
type benchRun struct {
	v1.CoAPBenchRun
	load   client.BenchConfig
	result *client.BenchResult // nil: it did not run
}

func runBenchAll(cmd *cobra.Command, host string, f *benchAllFlags) error {
	own, err := f.security()
	if err != nil {
		return cli.UsageError(err)
	}
	for _, test := range f.tests {
		if !slices.Contains(benchTests, test) {
			return cli.UsageError(fmt.Errorf("--tests: %q; use %s", test, strings.Join(benchTests, ", ")))
		}
	}
	if f.payload < 0 || f.payloadMedium < 0 || f.payloadLarge < 0 || max(f.payload, f.payloadMedium, f.payloadLarge) > 8000 {
		return cli.UsageError(errors.New("payloads must be between 0 and 8000 bytes"))
	}
	runs := f.runs(host, own)
	for i := range runs {
		if err := runs[i].load.Validate(); err != nil {
			return cli.UsageError(fmt.Errorf("%s: %w", runs[i].Test, err))
		}
	}
	failed := 0
	for i := range runs {
		if cmd.Context().Err() != nil {
			return cmd.Context().Err()
		}
		runs[i].run(cmd, f.quiet)
		if runs[i].Error != "" {
			failed++
		}
	}
	if f.json {
		out := make([]v1.CoAPBenchRun, 0, len(runs))
		for i := range runs {
			out = append(out, runs[i].CoAPBenchRun)
		}
		err = json.NewEncoder(cmd.OutOrStdout()).Encode(out)
	} else {
		err = printBenchRuns(cmd.OutOrStdout(), runs)
	}
	if err == nil && failed > 0 && !f.allowErrors {
		return fmt.Errorf("%d of %d tests failed", failed, len(runs))
	}
	return err
}

// runs are the tests, those over UDP first.
func (f *benchAllFlags) runs(host string, own client.Security) []benchRun {
	var runs []benchRun
	trusts := own.Credentials != nil
	for _, transport := range []struct {
		on     bool
		scheme string
		port   uint16
	}{
		{f.udp && f.plain, "coap", f.plainPort},
		{f.udp && f.secure, "coaps", f.securePort},
		{f.tcp && f.plain, "coap+tcp", f.plainPort},
		{f.tcp && f.secure && trusts, "coaps+tcp", f.securePort},
	} {
		if !transport.on {
			continue
		}
		base := transport.scheme + "://" + net.JoinHostPort(host, strconv.Itoa(int(transport.port))) + "/"
		for _, test := range f.tests {
			switch {
			case test == "handshakes" && transport.scheme == "coaps":
				runs = append(runs, f.handshakeRuns(base, own)...)
			case test == "handshakes" && transport.scheme != "coaps+tcp", test == "non" && strings.HasSuffix(transport.scheme, "+tcp"):
			default:
				load := f.load(test, base, own)
				runs = append(runs, benchRun{CoAPBenchRun: v1.CoAPBenchRun{Test: transport.scheme + " " + test, Clients: load.Clients}, load: load})
			}
		}
	}
	return runs
}

// load is the configuration of one test.
func (f *benchAllFlags) load(test, base string, own client.Security) client.BenchConfig {
	c := client.BenchConfig{
		URI: fmt.Sprintf("%s%s?rlen=%d", base, f.path, f.payload), Clients: f.clients, Requests: f.requests, NoStop: f.noStop, Payload: payloadOf(f.payload),
		Identity: own.Identity, Secret: own.Secret, Credentials: own.Credentials, ServerName: own.ServerName, Suites: own.Suites, CIDLength: own.CIDLength, NoCID: own.NoCID,
		ServerPID: f.serverPID,
	}
	blockSize := 1024
	if strings.Contains(base, "+tcp://") {
		c.Clients, c.CIDLength, c.NoCID = f.tcpClients, 0, false
		blockSize = 4096
	}
	switch test {
	case "handshakes":
		c.Requests, c.HandshakeEvery = f.handshakes, 1
	case "separate":
		c.URI += "&ack"
	case "non":
		c.NON = true
	case "blocks":
		c.URI = fmt.Sprintf("%s%s?rlen=%d", base, f.path, f.payloadLarge)
		c.Requests, c.Payload, c.BlockSize = f.requestsLarge, payloadOf(f.payloadLarge), blockSize
	case "observe":
		c.URI = fmt.Sprintf("%s%s?rlen=%d", base, f.path, f.payloadMedium)
		c.Mode, c.Clients, c.Requests = client.ModeObserve, f.observeClients, f.notifies
	case "reverse-request":
		c.URI = fmt.Sprintf("%sreverse-request?req=%d&res=feed-CON&rlen=%d", base, f.reverseNotifies, f.payload)
		c.Mode, c.Clients, c.Requests = client.ModeReverseRequest, f.observeClients, f.reverseNotifies
	case "reverse-observe":
		c.URI = fmt.Sprintf("%sreverse-observe?obs=%d&res=feed-CON&rlen=%d", base, f.reverseNotifies, f.payloadMedium)
		c.Mode, c.Clients, c.Requests, c.Payload = client.ModeReverseObserve, f.observeClients, f.reverseNotifies, payloadOf(f.payloadMedium)
	}
	return c
}

func payloadOf(n int) []byte { return []byte(strings.Repeat("weir", n/4+1)[:n]) }

// handshakeRuns are full handshakes of each kind of key exchange that the credentials allow, and resumed ones.
func (f *benchAllFlags) handshakeRuns(base string, own client.Security) (runs []benchRun) {
	suites := own.Suites
	if len(suites) == 0 {
		suites = record.Suites()
	}
	for _, kind := range []struct {
		name     string
		exchange record.KeyExchange
		resume   bool
	}{
		{"psk", record.PSK, false},
		{"psk resumed", record.PSK, true},
		{"ecdhe-psk", record.ECDHEPSK, false},
		{"certificate", record.ECDHEECDSA, false},
		{"certificate resumed", record.ECDHEECDSA, true},
	} {
		c := f.load("con", base, own)
		c.Requests, c.HandshakeEvery, c.Resume = f.handshakes, 1, kind.resume
		c.Suites = slices.DeleteFunc(slices.Clone(suites), func(s record.Suite) bool { return s.KeyExchange() != kind.exchange })
		certificates := kind.exchange == record.ECDHEECDSA
		if len(c.Suites) == 0 || certificates != (own.Credentials != nil) && (certificates || own.Identity == "") {
			continue
		}
		runs = append(runs, benchRun{CoAPBenchRun: v1.CoAPBenchRun{Test: "coaps handshakes " + kind.name, Clients: c.Clients}, load: c})
	}
	return runs
}

// run runs one test.
func (r *benchRun) run(cmd *cobra.Command, quiet bool) {
	progress := cmd.ErrOrStderr()
	if !quiet {
		fmt.Fprintf(progress, "%s: %s\n", r.Test, r.load.URI)
	}
	started := time.Now()
	result, err := client.Bench(cmd.Context(), r.load, func(s client.Snapshot) {
		if !quiet && s.Period >= time.Second/2 {
			fmt.Fprintln(progress, s.Line())
		}
	})
	if err != nil {
		r.Error = err.Error()
		return
	}
	r.result = &result
	whole := benchResult(r.load.URI, &coapBenchFlags{load: r.load, sockets: "each", payload: len(r.load.Payload)}, started, &result)
	r.Bench = &whole
	if s := &result.Stats; failed(&r.load, s) {
		r.Error = fmt.Sprintf("%d lost, %d failed, %d sessions lost, %d handshakes failed", s.Lost, s.Failed, s.LostSessions, s.HandshakeErrors)
	}
	if r.load.Resume && result.Stats.Resumed == 0 && r.Error == "" {
		r.Error = "the server resumes no session"
	}
}

func printBenchRuns(w io.Writer, runs []benchRun) error {
	t := terminal.NewTable(w, false)
	fmt.Fprintln(t, "TEST\tCLIENTS\tREQUESTS\tREQUESTS/S\tHANDSHAKES/S\tCLIENT US\tSERVER US\tP50 MS\tP99 MS\tRETRANSMISSIONS\tERROR")
	for i := range runs {
		r := &runs[i]
		if r.result == nil {
			fmt.Fprintf(t, "%s\t%d\t\t\t\t\t\t\t\t\t%s\n", r.Test, r.Clients, r.Error)
			continue
		}
		stats, handshakes, server := &r.result.Stats, "", ""
		if r.load.ServerPID != 0 {
			server = microseconds(r.result.ServerCPU, stats.Requests)
		}
		if r.load.HandshakeEvery > 0 {
			handshakes = fmt.Sprintf("%.0f", float64(stats.Handshakes)/max((r.result.Setup+r.result.Elapsed).Seconds(), 1e-9))
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%.0f\t%s\t%s\t%s\t%.3f\t%.3f\t%d\t%s\n", r.Test, r.Clients, stats.Requests,
			float64(stats.Requests)/max(r.result.Elapsed.Seconds(), 1e-9), handshakes, microseconds(r.result.CPU, stats.Requests), server,
			measure.Millis(r.result.RTT.Quantile(0.5)), measure.Millis(r.result.RTT.Quantile(0.99)), stats.Retransmissions, r.Error)
	}
	return t.Flush()
}

// microseconds is the processor time of one request.
func microseconds(cpu time.Duration, requests uint64) string {
	return fmt.Sprintf("%.1f", float64(cpu.Nanoseconds())/1000/float64(max(1, requests)))
}
