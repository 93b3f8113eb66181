package coap

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/readfile"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

const (
	maxState   = 4 << 20 // bytes of a state file
	saveEvery  = 5 * time.Second
	shownParts = 24 // of the history in the terminal
)

// receiveFlags are the flags of `weir coap receive`.
type receiveFlags struct {
	securityFlags
	test                client.ReceiveConfig
	bucket, duration    time.Duration
	state, report       string
	show, asJSON, quiet bool
}

func newReceiveCommand() *cobra.Command {
	var f receiveFlags
	cmd := &cobra.Command{
		Use:   "receive URI",
		Short: "Receive test: which requests and which responses are lost on the way?",
		Long: `Send a request every second to a server that remembers the newest requests of each client, as Californium's extended plugtest
server does at /requests, over UDP (coap://), DTLS 1.2 (coaps://), TCP (coap+tcp://) or TLS (coaps+tcp://).

A request without a response that the server remembers has lost its response. One that the server never got was lost itself.
Requests are non-confirmable and sent once, so each loss counts. Over TCP and TLS, requests and responses are lost with their
connection, which is opened again, or because they come too late. The state is kept on disk: a test goes on where it was stopped.
It takes at most a few hundred kB; after a day its parts of a minute become longer, never more.

The exit code is 0 when a response came, 1 when none did.`,
		Example: `  weir coap receive coap://localhost:5783/requests --duration 10m
  weir coap receive coaps://localhost:5784/requests --state lab.json --report lab.html
  weir coap receive coaps://localhost:5784/requests --state lab.json --show
  weir coap receive coap+tcp://localhost:5783/requests --duration 10m`,
		Args: cli.OneURI,
		RunE: func(cmd *cobra.Command, args []string) error { return runReceive(cmd, args[0], &f) },
	}
	flags := cmd.Flags()
	cli.DurationVar(flags, &f.test.Interval, "interval", time.Second, "between two requests")
	cli.DurationVar(flags, &f.test.Timeout, "timeout", 2*time.Second, "for a response; one that comes later counts as lost")
	flags.IntVar(&f.test.Count, "count", 0, "end after so many requests (default never); a few more request the fate of the last ones")
	flags.BoolVar(&f.test.CBOR, "cbor", false, "request the server's history in CBOR instead of JSON: an answer holds more of it")
	cli.DurationVar(flags, &f.duration, "duration", 0, "end after this time (default never)")
	flags.StringVar(&f.state, "state", "", "file that keeps the test between runs (default none: each run is a test of its own)")
	cli.DurationVar(flags, &f.bucket, "part", time.Minute, "length of the parts of the history, when the test begins")
	measuring.AddReportFlag(cmd, &f.report, "write the history as an HTML page with a picture to this file")
	flags.BoolVar(&f.show, "show", false, "send nothing: show the state of --state")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, cli.QuietUsage)
	f.add(flags)
	return cmd
}

func runReceive(cmd *cobra.Command, uri string, f *receiveFlags) error {
	var err error
	f.test.URI = uri
	if f.test.Security, err = f.security(); err != nil {
		return cli.UsageError(err)
	}
	if err := f.test.Validate(); err != nil {
		return cli.UsageError(err)
	}
	if f.bucket < time.Millisecond || f.duration < 0 {
		return cli.UsageError(errors.New("--part must be at least 1ms, and --duration must not be negative"))
	}
	if f.show && f.state == "" {
		return cli.UsageError(errors.New("--show: give the file with --state"))
	}
	ledger, err := f.load()
	if err != nil {
		return err
	}
	if !f.show {
		if err := f.run(cmd, ledger); err != nil {
			return err
		}
	}
	if err := measuring.WriteReport(f.report, func(w io.Writer) error { return receiveReport(uri, ledger).WriteHTML(w) }); err != nil {
		return err
	}
	if f.asJSON {
		err = json.NewEncoder(cmd.OutOrStdout()).Encode(receiveJSON(uri, ledger))
	} else {
		err = printLedger(cmd.OutOrStdout(), ledger)
	}
	if err == nil && ledger.Totals.Answered == 0 {
		return errors.New("no response came")
	}
	return err
}

// load reads the state, or begins a new one.
func (f *receiveFlags) load() (*client.Ledger, error) {
	device := "weir-" + rand.Text()[:16]
	if f.state == "" {
		return client.NewLedger(device, f.bucket), nil
	}
	text, err := readfile.Read(f.state, maxState)
	if errors.Is(err, fs.ErrNotExist) && !f.show {
		return client.NewLedger(device, f.bucket), nil
	}
	if err != nil {
		return nil, fmt.Errorf("--state: %w", err)
	}
	ledger := new(client.Ledger)
	if err := json.Unmarshal(text, ledger); err != nil {
		return nil, fmt.Errorf("--state: %s: %w; name another file to begin again", f.state, err)
	}
	if err := ledger.Validate(); err != nil {
		return nil, fmt.Errorf("--state: %s: %w; name another file to begin again", f.state, err)
	}
	return ledger, nil
}

// save writes the state, whole or not at all.
func (f *receiveFlags) save(ledger *client.Ledger) error {
	if f.state == "" {
		return nil
	}
	text, err := json.Marshal(ledger)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(f.state), filepath.Base(f.state)+".*")
	if err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), f.state)
	}
	if err != nil {
		os.Remove(file.Name()) //nolint:errcheck // the error that matters is err
		return fmt.Errorf("--state: %w", err)
	}
	return nil
}

// run runs the test, saves its state as it goes and shows its progress.
func (f *receiveFlags) run(cmd *cobra.Command, ledger *client.Ledger) error {
	if err := f.save(ledger); err != nil { // before anything is sent
		return err
	}
	ctx := cmd.Context()
	if f.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.duration)
		defer cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	progress := cmd.ErrOrStderr()
	var once sync.Once
	var failed error
	saved, lastOutput := time.Now(), time.Now()
	err := client.Receive(ctx, f.test, ledger, func(l *client.Ledger) {
		if time.Since(saved) > saveEvery {
			saved = time.Now()
			if err := f.save(l); err != nil {
				once.Do(func() { failed = err })
				cancel()
			}
		}
		if !f.quiet && time.Since(lastOutput) > time.Second {
			lastOutput = time.Now()
			fmt.Fprintln(progress, receiveLine(&l.Totals))
		}
	})
	return errors.Join(err, failed, f.save(ledger))
}

func receiveLine(c *client.ReceiveCounts) string {
	return fmt.Sprintf("%d requests, %d answered, %d requests lost (%s), %d responses lost (%s), %d unknown",
		c.Sent, c.Answered, c.LostRequests, share(c.LostRequests, c.Sent), c.LostResponses, share(c.LostResponses, c.Sent-min(c.Sent, c.LostRequests)), c.Unknown)
}

// share is a part in percent.
func share(part, whole uint64) string {
	if whole == 0 {
		return "0.00%"
	}
	return fmt.Sprintf("%.2f%%", 100*float64(part)/float64(whole))
}

func receiveJSON(uri string, l *client.Ledger) v1.CoAPReceive {
	out := v1.CoAPReceive{
		URI: uri, Device: l.Device, Totals: v1.CoAPReceiveCounts(l.Totals), Open: len(l.Open), ServerRestarts: l.Restarts,
		AddressChanges: l.Addresses, Part: l.Length.Seconds(), History: []v1.CoAPReceivePart{},
	}
	for i := range l.Buckets {
		b := &l.Buckets[i]
		out.History = append(out.History, v1.CoAPReceivePart{
			Start: b.Start.UTC(), Counts: v1.CoAPReceiveCounts(b.ReceiveCounts), MeanRTT: meanRTT(b), MaxRTT: b.RTTMax,
		})
	}
	return out
}

func meanRTT(b *client.ReceiveBucket) float64 {
	if b.Answered == 0 {
		return 0
	}
	return b.RTTSum / float64(b.Answered)
}

// printLedger writes the totals, and the newest parts of the history with a bar for what was lost.
func printLedger(w io.Writer, l *client.Ledger) error {
	fmt.Fprintln(w, receiveLine(&l.Totals))
	if open := len(l.Open); open > 0 {
		fmt.Fprintf(w, "%d whose fate is not known yet: the next response shows it\n", open)
	}
	if l.Restarts+l.Addresses > 0 {
		fmt.Fprintf(w, "%d restarts of the server, %d changes of this client's address as the server sees it\n", l.Restarts, l.Addresses)
	}
	fmt.Fprintln(w)
	t := terminal.NewTable(w, false)
	fmt.Fprintln(t, "FROM\tSENT\tANSWERED\tREQUESTS LOST\tRESPONSES LOST\tUNKNOWN\tMEAN MS\tLOST OF 100")
	for i := max(0, len(l.Buckets)-shownParts); i < len(l.Buckets); i++ {
		b := &l.Buckets[i]
		lost := float64(b.LostRequests+b.LostResponses) / float64(max(b.Sent, 1))
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%.3f\t%s\n", b.Start.Local().Format("01-02 15:04:05"), b.Sent, b.Answered, b.LostRequests, b.LostResponses,
			b.Unknown, meanRTT(b), strings.Repeat("#", int(lost*40+0.5)))
	}
	return t.Flush()
}

// receiveReport is the history as a page.
func receiveReport(uri string, l *client.Ledger) plot.Report {
	var hours, there, back, rtt, longest []float64
	for i := range l.Buckets {
		b := &l.Buckets[i]
		whole := float64(max(b.Sent, 1))
		hours = append(hours, b.Start.Sub(l.Buckets[0].Start).Hours())
		there, back, rtt = append(there, 100*float64(b.LostRequests)/whole), append(back, 100*float64(b.LostResponses)/whole), append(rtt, meanRTT(b))
		longest = append(longest, b.RTTMax)
	}
	c := &l.Totals
	return plot.Report{
		Title: "Receive test of " + uri, When: time.Now(), OK: c.LostRequests+c.LostResponses+c.Unknown == 0, Verdict: receiveLine(c) + ".",
		Facts: []plot.Fact{
			{Name: "requests", Value: fmt.Sprint(c.Sent)},
			{Name: "requests lost", Value: share(c.LostRequests, c.Sent)},
			{Name: "responses lost", Value: share(c.LostResponses, c.Sent-min(c.Sent, c.LostRequests))},
			{Name: "restarts of the server", Value: fmt.Sprint(l.Restarts)},
		},
		Figures: []plot.Figure{
			plot.Chart{
				Title: "Lost on the way", Note: fmt.Sprintf("Share of the requests sent in each part of %v.", l.Length), XLabel: "hours", YLabel: "percent",
				Series: []plot.Series{{Name: "requests", X: hours, Y: there}, {Name: "responses", X: hours, Y: back}},
			},
			plot.Chart{Title: "Round-trip time", Note: "Of the answered requests of each part.", XLabel: "hours", YLabel: "ms", Series: []plot.Series{{Name: "mean", X: hours, Y: rtt}, {Name: "max", X: hours, Y: longest}}},
		},
		Method: measuring.TypedCommand(),
	}
}
