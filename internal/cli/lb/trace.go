package lb

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/datapath/ebpf"
	"github.com/weir-lb/weir/internal/datapath/ebpf/pins"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// traceFlags are those of `weir lb trace`.
type traceFlags struct {
	pinPath, service, source, host, capture string
	cli.ClientFlags
	reasons []string
	limit   int
}

func newLBTraceCommand() *cobra.Command {
	var flags traceFlags
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Watch packets of the data path with what became of them and why",
		Long: `Watch packets of the data paths nfqueue and ebpf: each with the decision, its reason, service and backend. The process at
--admin reports which data path it runs.

ebpf: the filter runs in the kernel; without a trace the programs spend one load on it. It reads the tables below
--pin-path, so it works also while weir itself is down; with --pin-path, no process is queried. While weir starts, it waits.

nfqueue: the filter runs in weir's workers, which never wait for a trace: what comes faster than it is read is counted.
Each line names mark and queue too. A fragment that is held shows when it comes, and again when it is decided.

Packets that no service wants (not_service, not_ip) are shown only when --reason names them or an address is given.
One trace at a time. The data path udp has none.

With --pcap the heads of the packets, as they came (nfqueue: from the IP header on), go to a pcapng file with the decision as each packet's comment:
Wireshark shows it, and weir explain reads it. docs/reasons.md says what each reason means.`,
		Example: `  weir lb trace --limit 20
  weir lb trace --service coaps --reason cid_unknown,no_backend
  weir lb trace --host 192.0.2.7 --json | jq -r .reason
  weir lb trace --reason malformed,too_big --pcap bad.pcapng
  weir lb trace --admin unix:/run/weir.sock --src 192.0.2.0/24`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := flags.filter()
			if err != nil {
				return cli.UsageError(err)
			}
			if flags.limit < 0 {
				return cli.UsageError(fmt.Errorf("--limit %d: write 0 (no limit) or more", flags.limit))
			}
			return runTrace(cmd, &flags, filter)
		},
	}
	set := cmd.Flags()
	set.StringVar(&flags.pinPath, "pin-path", pins.DefaultPath, "ebpf: as of weir lb run; if it is given, no process is queried")
	flags.AddAddress(cmd, cli.LBPart())
	set.StringVar(&flags.service, "service", "", "only packets for this service, and its replies")
	set.StringSliceVar(&flags.reasons, "reason", nil, "only these reasons, such as no_backend,maglev")
	set.StringVar(&flags.source, "src", "", "only packets from this address or prefix")
	set.StringVar(&flags.host, "host", "", "only packets from or to this address or prefix")
	set.IntVar(&flags.limit, "limit", 0, "end after so many packets; 0: when interrupted")
	set.StringVar(&flags.capture, "pcap", "", "write the packets to this pcapng file")
	set.BoolVar(&flags.AsJSON, "json", false, "print one JSON object per packet")
	cli.CompleteFlag(cmd, "service", serviceNames(&flags.ClientFlags, false))
	return cmd
}

func (f *traceFlags) filter() (ebpf.TraceFilter, error) {
	filter := ebpf.TraceFilter{Service: f.service}
	if f.source != "" && f.host != "" {
		return filter, fmt.Errorf("--src and --host: give one of them")
	}
	if text := f.source + f.host; text != "" {
		var err error
		if filter.Prefix, err = parsePrefix(text); err != nil {
			return filter, err
		}
		filter.Both = f.host != ""
	}
	for _, name := range f.reasons {
		reason, ok := lb.ParseReason(name)
		if !ok {
			return filter, fmt.Errorf("--reason: no reason %q; docs/reasons.md lists them, weir lb show those that happen", name)
		}
		filter.Reasons = append(filter.Reasons, reason)
	}
	if len(f.reasons) == 0 && !filter.Prefix.IsValid() {
		for reason := range lb.Reason(lb.NumReasons) {
			if reason != lb.ReasonNotService && reason != lb.ReasonNotIP {
				filter.Reasons = append(filter.Reasons, reason)
			}
		}
	}
	return filter, nil
}

func parsePrefix(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, fmt.Errorf("%q: write an address or a prefix, such as 192.0.2.0/24", text)
	}
	return prefix.Masked(), nil
}

func runTrace(cmd *cobra.Command, flags *traceFlags, filter ebpf.TraceFilter) error {
	var capture *traceFile
	if flags.capture != "" {
		file, err := os.Create(flags.capture)
		if err != nil {
			return fmt.Errorf("--pcap: %w", err)
		}
		defer file.Close()
		if capture, err = newTraceFile(file); err != nil {
			return err
		}
	}
	out, seen := cmd.OutOrStdout(), 0
	encoder := json.NewEncoder(out)
	var failed error
	each := func(line v1.TracedPacket, head []byte) bool {
		if flags.AsJSON {
			failed = encoder.Encode(line)
		} else {
			_, failed = fmt.Fprintln(out, tracedText(&line))
		}
		if failed == nil && capture != nil {
			failed = capture.write(line, head)
		}
		seen++
		return failed == nil && (flags.limit == 0 || seen < flags.limit)
	}
	lost, err := trace(cmd, flags, filter, each)
	if lost > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d packets came faster than they could be shown; filter more\n", lost)
	}
	if err == nil {
		err = failed
	}
	return err
}

// trace calls each for the packets of the data path that serves.
func trace(cmd *cobra.Command, flags *traceFlags, filter ebpf.TraceFilter, each func(line v1.TracedPacket, head []byte) bool) (lost uint64, err error) {
	queues, client, queryErr := servedByQueues(cmd, flags)
	switch {
	case queues:
		return traceQueue(cmd.Context(), client, filter, each)
	case queryErr != nil && (cmd.Flags().Changed("admin") || cmd.Flags().Changed("admin-token-file")):
		return 0, queryErr
	}
	if err = privilege.Check(privilege.LBTrace); err == nil {
		err = ebpf.Await(cmd.Context(), flags.pinPath, func() {
			fmt.Fprintln(cmd.ErrOrStderr(), "weir is starting; waiting until its programs are loaded")
		})
	}
	if cmd.Context().Err() != nil {
		return 0, nil // interrupted while it waited
	}
	if err == nil {
		lost, err = ebpf.Trace(cmd.Context(), flags.pinPath, filter, func(p *ebpf.Traced) bool { return each(describeTraced(p), p.Data) })
	}
	if err != nil && queryErr != nil {
		err = fmt.Errorf("%w; and %w", queryErr, err)
	}
	return lost, err
}

func describeTraced(p *ebpf.Traced) v1.TracedPacket {
	line := v1.TracedPacket{
		Time: p.Time, Interface: p.Interface, Length: p.Length, Action: p.Reason.Action().String(), Reason: p.Reason.String(),
		Service: p.Service, Backend: p.Backend, New: p.New,
	}
	if p.Source.Addr().IsValid() && p.Protocol != 0 {
		line.Protocol, line.Source, line.Destination = lb.Protocol(p.Protocol).String(), p.Source.String(), p.Destination.String()
	}
	return line
}

// decision returns the line without the packet, as the comment in a capture has it.
func decisionText(l *v1.TracedPacket) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", l.Action, l.Reason)
	if l.Service != "" {
		fmt.Fprintf(&b, " %s", l.Service)
	}
	if l.Backend != "" {
		fmt.Fprintf(&b, "/%s", l.Backend)
	}
	if l.New {
		b.WriteString(" new")
	}
	if l.Mark != 0 {
		fmt.Fprintf(&b, ", mark %d", l.Mark)
	}
	if l.Queue != nil {
		fmt.Fprintf(&b, ", queue %d", *l.Queue)
	}
	return b.String()
}

func tracedText(l *v1.TracedPacket) string {
	flow := "-"
	if l.Protocol != "" {
		flow = fmt.Sprintf("%s %s > %s", l.Protocol, l.Source, l.Destination)
	}
	return fmt.Sprintf("%s %s %s, %d bytes: %s", l.Time.Format("15:04:05.000000"), l.Interface, flow, l.Length, decisionText(l))
}

// traceFile is the file of --pcap.
type traceFile struct {
	writer     *packet.CaptureWriter
	interfaces map[string]int
}

func newTraceFile(w io.Writer) (*traceFile, error) {
	writer, err := packet.NewCaptureWriter(w, "weir lb trace")
	return &traceFile{writer, map[string]int{}}, err
}

func (c *traceFile) write(line v1.TracedPacket, head []byte) error {
	on, ok := c.interfaces[line.Interface]
	if !ok {
		describe := c.writer.Interface
		if line.Queue != nil {
			describe = c.writer.IPInterface // a queue gives no Ethernet header
		}
		var err error
		if on, err = describe(line.Interface); err != nil {
			return err
		}
		c.interfaces[line.Interface] = on
	}
	return c.writer.Packet(on, time.Duration(line.Time.UnixNano()), line.Length, head, decisionText(&line))
}
