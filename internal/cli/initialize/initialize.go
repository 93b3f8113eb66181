package initialize

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// initFlags are what a first configuration needs to know.
type initFlags struct {
	mode, protocol, vip string
	backends            []string
}

func newInitCommand() *cobra.Command {
	var flags initFlags
	cmd := &cobra.Command{
		Use:   "init [FILE]",
		Short: "Write a first configuration of the load balancer, with comments",
		Long: `Write a configuration with one service, comments and a new random hash key to FILE (weir.yaml), or with - to standard
output. A file that exists is not overwritten. Without flags the addresses are examples: edit them, then run weir check.

Mode nat rewrites addresses, and replies come back through the balancer. In mode l2dsr and l3dsr the backends have the VIP on
their loopback interface and reply to the client directly: l2dsr in one layer-2 network, l3dsr through an IP-in-IP tunnel.`,
		Example: `  weir init
  weir init --vip 10.0.0.1:80 --backend 10.2.0.2:80 --backend 10.3.0.2:80
  weir init coap.yaml --protocol udp --vip 192.0.2.1:5684 --backend 10.0.0.11:5684
  weir init dsr.yaml --mode l2dsr --vip 192.0.2.1:443 --backend 10.0.0.11,10.0.0.12`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%d files given; name at most one", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			file := "weir.yaml"
			if len(args) == 1 {
				file = args[0]
			}
			text, err := flags.configuration(file)
			if err != nil {
				return cli.UsageError(err)
			}
			if file == "-" {
				_, err := cmd.OutOrStdout().Write(text)
				return err
			}
			if err := writeNew(file, text); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "wrote %s\ncheck it:  weir check %[1]s\n", file)
			return err
		},
	}
	cmd.Flags().StringVar(&flags.mode, "mode", "nat", "how packets reach backends: nat, l2dsr or l3dsr")
	cmd.Flags().StringVar(&flags.protocol, "protocol", "tcp", "tcp or udp")
	cmd.Flags().StringVar(&flags.vip, "vip", "192.0.2.1:443", "ADDRESS:PORT that clients use")
	cmd.Flags().StringSliceVar(&flags.backends, "backend", nil, "a backend: ADDRESS:PORT, in the modes with direct server return ADDRESS; may be repeated (default two examples)")
	return cmd
}

// writeNew writes a file that must not exist. Its hash key is for the owner's eyes.
func writeNew(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists and is not overwritten; name another file, or remove it first", path)
	}
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// initBackend is a line of backends. Port is 0 where the mode does not change ports.
type initBackend struct {
	Name    string
	Address netip.Addr
	Port    uint16
}

// configuration is the text of a file that weir check takes without a warning.
func (f *initFlags) configuration(path string) ([]byte, error) {
	if f.mode != "nat" && f.mode != "l2dsr" && f.mode != "l3dsr" {
		return nil, fmt.Errorf("--mode %q; write nat, l2dsr or l3dsr", f.mode)
	}
	if f.protocol != "tcp" && f.protocol != "udp" {
		return nil, fmt.Errorf("--protocol %q; write tcp or udp", f.protocol)
	}
	vip, err := netip.ParseAddrPort(f.vip)
	if err != nil {
		return nil, fmt.Errorf("--vip %q; write ADDRESS:PORT, such as 192.0.2.1:443", f.vip)
	}
	backends, err := f.parseBackends(vip.Port())
	if err != nil {
		return nil, err
	}
	var key [16]byte
	rand.Read(key[:]) //nolint:errcheck // crypto/rand.Read never returns an error
	var text bytes.Buffer
	if err := initTemplate().Execute(&text, map[string]any{
		"Key": hex.EncodeToString(key[:]), "Mode": f.mode, "DSR": f.mode != "nat", "Protocol": f.protocol,
		"Address": vip.Addr(), "Port": vip.Port(), "Backends": backends,
	}); err != nil {
		return nil, err
	}
	spec, _, err := config.Decode[lb.Spec](path, text.Bytes())
	if err != nil {
		return nil, err
	}
	if _, err := lb.Compile(spec, nil, lb.AllCaps()); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}

func (f *initFlags) parseBackends(vipPort uint16) ([]initBackend, error) {
	texts := f.backends
	if len(texts) == 0 {
		texts = []string{"10.0.0.11", "10.0.0.12"}
		if f.mode == "nat" {
			texts = []string{fmt.Sprintf("10.0.0.11:%d", vipPort), fmt.Sprintf("10.0.0.12:%d", vipPort)}
		}
	}
	var all []initBackend
	for i, text := range texts {
		backend := initBackend{Name: fmt.Sprintf("b%d", i+1)}
		if f.mode == "nat" {
			at, err := netip.ParseAddrPort(text)
			if err != nil {
				return nil, fmt.Errorf("--backend %q; in mode nat write ADDRESS:PORT, such as 10.0.0.11:443", text)
			}
			backend.Address, backend.Port = at.Addr(), at.Port()
		} else {
			at, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("--backend %q; mode %s does not change ports: write an ADDRESS, such as 10.0.0.11", text, f.mode)
			}
			backend.Address = at
		}
		all = append(all, backend)
	}
	return all, nil
}

func initTemplate() *template.Template {
	return template.Must(template.New("weir.yaml").Parse(strings.TrimLeft(`
# Weir load balancer. All keys: docs/lb-config.md. Check this file with: weir check FILE
# While the balancer runs, it applies each change of this file that is valid.

# Keys the hash that spreads flows. Keep it secret. Use the same key on all balancers of one tier.
hash_key: {{.Key}}

services:
- name: service1
  # nat: replies come back through the balancer. l2dsr, l3dsr: backends reply to clients directly.
  mode: {{.Mode}}
{{- if eq .Mode "l3dsr"}}
  tunnel: ipip   # or gue; a backend decapsulates with: weir lb decap
{{- end}}

  # What clients connect to.{{if .DSR}} Each backend needs this address on its loopback interface.{{end}}
  vips:
  - {address: "{{.Address}}", protocol: {{.Protocol}}, port: {{.Port}}}

{{- if eq .Protocol "tcp"}}

  # A backend that does not accept connections gets no new flows.
  health: {type: tcp, {{if .DSR}}port: {{.Port}}, {{end}}interval: 2s, timeout: 1s, rise: 2, fall: 3}
{{- else}}

  # Choose a probe that your server answers: coap_ping, stun_binding, or http and tcp on another port.
  # health: {type: coap_ping, interval: 2s, timeout: 1s, rise: 2, fall: 3}
{{- end}}

  # New flows are spread by weight. Weight 0 keeps old flows and gets no new ones.
  backends:
{{- range .Backends}}
  - {name: {{.Name}}, address: "{{.Address}}"{{if .Port}}, port: {{.Port}}{{end}}, weight: 100}
{{- end}}
`, "\n")))
}

// Family is weir init.
func Family() cli.Family {
	return cli.Family{Command: newInitCommand, Arguments: initArguments}
}

func initArguments() map[string]cobra.CompletionFunc {
	return map[string]cobra.CompletionFunc{
		"weir init": cli.AtMost(1, cli.Configurations()),
	}
}
