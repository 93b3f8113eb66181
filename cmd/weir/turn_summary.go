package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

func (p *gatewayPlan) summary() v1.TurnGateway {
	c := p.gateway.WithDefaults()
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

// quantity is a count with its noun.
func quantity(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// printGateway writes the summary for people.
func printGateway(w io.Writer, s *v1.TurnGateway) error {
	who := map[gateway.AuthMode]string{
		gateway.AuthStatic: quantity(s.Users, "user"), gateway.AuthEphemeral: quantity(s.Secrets, "secret"), gateway.AuthNone: "STUN only",
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
