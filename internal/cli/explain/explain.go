package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/balancing"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
	"github.com/weir-lb/weir/internal/steering/replay"
)

// explainOptions are the flags of weir explain.
type explainOptions struct {
	file      cli.ConfigFile
	packets   []string
	pcap      string
	overrides []string
	datapath  string
	limit     int
	json      bool
}

func newExplainCommand() *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain FILE (--packet PACKET... | --pcap CAPTURE)",
		Short: "Say where a packet or a capture would go, and why",
		Long: `Say which backend a load balancer with this configuration would send a packet to, and why. Nothing is sent and
nothing needs privileges: the decisions are those of the reference that every data path is tested against.

Packets are given in words, several in order, so that later ones find the flows of earlier ones:

  udp 10.0.0.1:5000 > 192.0.2.1:5684 [hex payload] [option=value...]
  tcp [2001:db8::1]:5000 > [2001:db8::2]:443 flags=syn
  ping 10.0.0.1 > 192.0.2.1 ident=7
  toobig 10.9.9.9 1300 about udp 192.0.2.1:5684 > 10.0.0.1:5000
  udp 10.0.0.1:5000 > 192.0.2.1:5684 payload=3000 id=9 frag=1400    all its fragments

Options: payload=N ttl= class= id= df csum=0 flags= opt= ext= inner= frag= piece= vlan= ident= seq=.
A capture may be pcap or pcapng; its own times count for time-outs.
Exit codes: 0 every packet was explained, 1 the configuration or the capture is bad, 2 wrong usage.`,
		Example: `  weir explain weir.yaml --packet "udp 10.0.0.1:5000 > 192.0.2.1:5684"
  weir explain weir.yaml --packet "udp 10.0.0.1:5000 > 192.0.2.1:5684 19fefd000100000000000102aabbccddee0000"
  weir explain weir.yaml --override coaps/a=drain --packet "udp 10.0.0.1:5000 > 192.0.2.1:5684"
  weir explain weir.yaml --pcap trace.pcap --json | jq .summary
  tcpdump -c 1000 -w - udp | weir explain weir.yaml --pcap -`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return explain(cmd, o.file.Path, &o)
		},
	}
	o.file.Add(cmd, "")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 && len(o.packets) == 0 {
			return cli.UsageError(fmt.Errorf("name one file, and the packet as --packet %q", strings.Join(args[1:], " ")))
		}
		return o.file.Required(cmd, args)
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.packets, "packet", "p", nil, "a packet in words; may be given several times")
	flags.StringVar(&o.pcap, "pcap", "", "a capture file, pcap or pcapng; - is standard input")
	flags.StringArrayVar(&o.overrides, "override", nil, "SERVICE[/BACKEND]=drain, down or up; may be given several times")
	flags.StringVar(&o.datapath, "datapath", "", "with the capabilities of this data path: ebpf, nfqueue or udp")
	flags.IntVar(&o.limit, "limit", 1000, "packets of a capture to list; the summary counts all")
	flags.BoolVar(&o.json, "json", false, "print JSON")
	return cmd
}

func explain(cmd *cobra.Command, file string, o *explainOptions) error {
	switch {
	case len(o.packets) == 0 && o.pcap == "":
		return cli.UsageError(errors.New(`give --packet "udp 10.0.0.1:5000 > 192.0.2.1:5684" or --pcap CAPTURE`))
	case len(o.packets) > 0 && o.pcap != "":
		return cli.UsageError(errors.New("give either --packet or --pcap, not both"))
	case o.limit < 0:
		return cli.UsageError(errors.New("--limit: write 0 or more"))
	}
	snapshot, err := explainSnapshot(file, o)
	if err != nil {
		return err
	}
	tracer := replay.New(snapshot)
	if o.pcap == "" {
		for _, line := range o.packets {
			if err := tracer.Text(line); err != nil {
				return cli.UsageError(fmt.Errorf("--packet %q: %w", line, err))
			}
		}
		return printTrace(cmd.OutOrStdout(), tracer, o.json, true)
	}
	tracer.Limit = o.limit
	if err := traceCapture(cmd, tracer, o.pcap); err != nil {
		return err
	}
	return printTrace(cmd.OutOrStdout(), tracer, o.json, false)
}

// explainSnapshot compiles the file with the overrides requested.
func explainSnapshot(file string, o *explainOptions) (*lb.Snapshot, error) {
	caps := lb.AllCaps()
	caps.CrossFamily = false // the engine rewrites packets, and a packet keeps its family
	if o.datapath != "" {
		var err error
		if caps, err = balancing.Caps(o.datapath); err != nil {
			return nil, cli.UsageError(err)
		}
	}
	text, err := config.Once(file)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, cli.UsageError(err)
		}
		return nil, err
	}
	spec, document, err := config.Decode[lb.Spec](file, text)
	if err != nil {
		return nil, err
	}
	var overrides *lb.Overrides
	for _, text := range o.overrides {
		target, value, err := parseOverride(&spec, text)
		if err != nil {
			return nil, cli.UsageError(err)
		}
		overrides = overrides.With(target, lb.FromOperator, value)
	}
	snapshot, err := lb.Compile(spec, overrides, caps)
	if err != nil {
		return nil, control.Locate(err, document)
	}
	return snapshot, nil
}

// parseOverride reads SERVICE[/BACKEND]=STATE for something that the spec has.
func parseOverride(spec *lb.Spec, text string) (target lb.Target, value lb.Override, err error) {
	name, state, ok := strings.Cut(text, "=")
	if !ok {
		return target, value, fmt.Errorf("--override %q: write SERVICE/BACKEND=drain", text)
	}
	if err := value.UnmarshalText([]byte(state)); err != nil {
		return target, value, fmt.Errorf("--override %q: %w", text, err)
	}
	target.Service, target.Backend, _ = strings.Cut(name, "/")
	for i := range spec.Services {
		s := &spec.Services[i]
		if s.Name != target.Service {
			continue
		}
		if target.Backend == "" {
			return target, value, nil
		}
		for j := range s.Backends {
			if s.Backends[j].Name == target.Backend {
				return target, value, nil
			}
		}
	}
	return target, value, fmt.Errorf("--override %q: the file has no %s", text, target)
}

// traceCapture reads a whole capture.
func traceCapture(cmd *cobra.Command, tracer *replay.Tracer, name string) error {
	in := cmd.InOrStdin()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return cli.UsageError(err)
		}
		defer f.Close()
		in = f
	}
	reader, err := packet.NewCaptureReader(newProgressReader(cmd.Context(), in, cmd.ErrOrStderr(), tracer))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for {
		captured, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if ctx := cmd.Context(); ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("%s: packet %d: %w", name, tracer.Summary.Packets+1, err)
		}
		tracer.Captured(captured)
	}
}

// printTrace writes what became of each packet, and for a capture the sums.
func printTrace(w io.Writer, t *replay.Tracer, asJSON, steps bool) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(v1.Explanation{Packets: t.Rows, Summary: t.Summary})
	}
	if steps {
		return printSteps(w, t.Rows)
	}
	return printTable(w, t)
}

// Family is weir explain.
func Family() cli.Family {
	return cli.Family{Command: newExplainCommand}
}
