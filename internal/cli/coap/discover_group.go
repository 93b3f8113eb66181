package coap

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/terminal"
)

// groupFlags are the flags of requests to a multicast group.
type groupFlags struct {
	device string
	hops   int
	wait   time.Duration
}

func (g *groupFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&g.device, "interface", "i", "", "interface by which a request to a multicast group leaves (default the zone of the address, or the kernel's choice)")
	flags.IntVar(&g.hops, "hops", 1, "routers and links that a request to a multicast group may pass, 1 to 255")
	cli.DurationVar(flags, &g.wait, "wait", 7*time.Second, "how long to collect the answers of a multicast group")
}

// runDiscoverGroup lists what the servers of a multicast group offer, one after the other by their address.
func runDiscoverGroup(cmd *cobra.Command, uri string, f *requestFlags, g *groupFlags, path []string, asJSON bool) error {
	if g.hops < 1 || g.hops > 255 {
		return cli.UsageError(fmt.Errorf("--hops: %d is not between 1 and 255", g.hops))
	}
	cfg, err := f.request(cmd, message.GET, uri)
	if err != nil {
		return cli.UsageError(err)
	}
	cfg.Path = path
	live := terminal.NewLive(cmd.ErrOrStderr())
	defer live.Clear()
	start := time.Now()
	var answers []*client.GroupAnswer
	show := func() {
		live.Show(fmt.Sprintf("%s of %s, %s answered", time.Since(start).Round(time.Second), g.wait, terminal.Quantity(len(answers), "server")))
	}
	show()
	_, err = client.AskGroup(cmd.Context(), client.GroupRequest{
		URI: uri, Request: cfg.Request, Interface: g.device, Hops: g.hops, Wait: g.wait, Timeout: f.timeout,
		Answered: func(a *client.GroupAnswer) { answers = append(answers, a); show() },
	})
	live.Clear()
	if err != nil {
		return err
	}
	if len(answers) == 0 {
		return fmt.Errorf("%s: no server answered within %s; servers join groups only if configured (weir coap server --multicast), and answer within their leisure: try --wait 30s, --interface NAME or --hops 8", uri, g.wait)
	}
	slices.SortFunc(answers, func(a, b *client.GroupAnswer) int {
		return cmp.Or(a.Source.Addr().Compare(b.Source.Addr()), cmp.Compare(a.Source.Port(), b.Source.Port()))
	})
	servers := make([]v1.CoAPServerLinks, 0, len(answers))
	for _, a := range answers {
		servers = append(servers, serverLinks(a))
	}
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(servers)
	}
	t := terminal.NewTable(cmd.OutOrStdout(), false)
	fmt.Fprintln(t, "SERVER\tAFTER\tRESOURCE\tTYPE\tINTERFACE\tFORMATS\tTITLE")
	for i := range servers {
		printServer(t, &servers[i])
	}
	return t.Flush()
}

func serverLinks(a *client.GroupAnswer) v1.CoAPServerLinks {
	s := v1.CoAPServerLinks{Source: a.Source.String(), After: float64(a.After.Microseconds()) / 1000, Links: []v1.CoAPLink{}}
	err := a.Err
	var links []client.Link
	if err == nil && a.Message.Code.Class() != 2 {
		err = fmt.Errorf("%s: %q", a.Message.Code, a.Message.Payload)
	}
	if err == nil {
		links, err = client.ParseLinks(string(a.Message.Payload))
	}
	if err != nil {
		s.Error = err.Error()
		return s
	}
	s.Links = linksJSON(links)
	return s
}

func printServer(t *terminal.Table, s *v1.CoAPServerLinks) {
	after := fmt.Sprintf("%.0f ms", s.After)
	switch {
	case s.Error != "":
		fmt.Fprintf(t, "%s\t%s\t%s\n", s.Source, after, client.Printable(s.Error))
	case len(s.Links) == 0:
		fmt.Fprintf(t, "%s\t%s\t(none)\n", s.Source, after)
	}
	for _, l := range s.Links {
		formats := make([]string, 0, len(l.Formats))
		for _, format := range l.Formats {
			formats = append(formats, fmt.Sprint(format))
		}
		row := []string{l.Target, strings.Join(l.Types, " "), strings.Join(l.Interfaces, " "), strings.Join(formats, " "), l.Title}
		for i := range row {
			row[i] = client.Printable(row[i])
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", s.Source, after, strings.Join(row, "\t"))
	}
}
