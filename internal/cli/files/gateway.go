package files

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/turn/gateway"
	"github.com/weir-lb/weir/internal/turn/stunnerd"
)

// GatewayPlan is the result of reading a configuration file, or a TURN URI, for a gateway process.
type GatewayPlan struct {
	Gateway         gateway.Config
	Health, Metrics stunnerd.Endpoint // of STUNner's files
	STUNner         bool              // the file is one of STUNner's
	Log             stunnerd.LogLevels
	Notes           []string
	Document        *config.Document // nil of a URI
}

// Gateway reads a gateway's configuration in Weir's format or in STUNner's; it detects the format. An error
// names file, line and key.
func Gateway(name string, text []byte) (*GatewayPlan, error) {
	if stunnerd.Recognize(config.Keys(text)) {
		return parseStunnerd(name, text)
	}
	c, document, err := config.Decode[gateway.Config](name, text)
	if err != nil {
		return nil, document.Also(err, func() error { return document.Locate(c.Validate()) })
	}
	if err := c.Validate(); err != nil {
		return nil, document.Locate(err)
	}
	if len(c.Listeners) == 0 {
		return nil, document.Errorf("listeners", "there is none, nothing would be served; add one, such as listeners: [{name: udp, address: 0.0.0.0, port: 3478}]")
	}
	return &GatewayPlan{Gateway: c, Document: document, Notes: document.Warnings(), Log: stunnerd.LogLevels{All: slog.LevelInfo}}, nil
}

func parseStunnerd(name string, text []byte) (*GatewayPlan, error) {
	file, document, notes, err := config.DecodeForeign[stunnerd.Config](name, text)
	if err != nil {
		return nil, document.Also(err, func() error {
			_, wrong := file.Convert(os.Getenv)
			return document.Locate(wrong)
		})
	}
	result, err := file.Convert(os.Getenv)
	if err != nil {
		return nil, document.Locate(err)
	}
	for _, note := range result.Notes {
		notes = append(notes, document.Locate(note).Error())
	}
	return &GatewayPlan{
		Gateway: result.Gateway, Health: result.Health, Metrics: result.Metrics, STUNner: true, Log: result.Log,
		Notes: notes, Document: document,
	}, nil
}

// Check also checks the files that the configuration names.
func (p *GatewayPlan) Check() error {
	return p.Document.Locate(p.Gateway.CheckCertificates())
}

// Summary is what weir check and --check print of the plan.
func (p *GatewayPlan) Summary() v1.TurnGateway {
	c := p.Gateway.WithDefaults()
	s := v1.TurnGateway{Name: c.Name, Realm: c.Realm, Auth: string(c.Auth.Mode), Users: len(c.Auth.Users), Secrets: len(c.Auth.Secrets)}
	for i := range c.Listeners {
		l := &c.Listeners[i]
		s.Listeners = append(s.Listeners, v1.TurnGatewayListen{
			Name: l.Name, URI: l.URI(), Address: fmt.Sprintf("%s %v port %d", l.Protocol, l.Address, l.Port),
			RelayPorts: l.RelayPorts.String(), Routes: l.Routes,
		})
	}
	for i := range c.Clusters {
		from := &c.Clusters[i]
		s.Clusters = append(s.Clusters, v1.TurnGatewayPeers{Name: from.Name, Protocol: string(from.Protocol), Endpoints: from.Endpoints})
	}
	return s
}

// PrintGateway writes the summary for people.
func PrintGateway(w io.Writer, s *v1.TurnGateway) error {
	who := map[gateway.AuthMode]string{
		gateway.AuthStatic: terminal.Quantity(s.Users, "user"), gateway.AuthEphemeral: terminal.Quantity(s.Secrets, "secret"), gateway.AuthNone: "STUN only",
	}[gateway.AuthMode(s.Auth)]
	fmt.Fprintf(w, "gateway %s: realm %s, authentication %s (%s)\n", s.Name, s.Realm, s.Auth, who)
	table := terminal.NewTable(w, false)
	fmt.Fprintln(table, "LISTENER\tURI\tRELAY PORTS\tROUTES")
	for _, l := range s.Listeners {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", l.Name, l.URI, l.RelayPorts, cmp.Or(strings.Join(l.Routes, ", "), "(no peer)"))
	}
	if err := table.Flush(); err != nil || len(s.Clusters) == 0 {
		return err
	}
	fmt.Fprintln(table, "\nCLUSTER\tPEERS OVER\tENDPOINTS")
	for _, c := range s.Clusters {
		fmt.Fprintf(table, "%s\t%s\t%s\n", c.Name, c.Protocol, cmp.Or(strings.Join(c.Endpoints, ", "), "(none)"))
	}
	return table.Flush()
}
