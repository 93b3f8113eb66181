package coap

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/client"
	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/terminal"
)

func newDiscoverCommand() *cobra.Command {
	var f requestFlags
	var group groupFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "discover URI",
		Short: "List the resources of a server (RFC 6690)",
		Long: `Get /.well-known/core of a server over UDP, DTLS, TCP or TLS and list its resources: path, resource type, interface,
content formats, size, and whether a resource can be observed. A query in the URI is a filter.

A multicast address finds the servers of a network: 224.0.1.187, or ff02::fd (this link) and ff05::fd (this site) with the
interface as the zone. Servers answer within some seconds, and all answers that come within --wait are listed.` + exitCodes,
		Example: `  weir coap discover coap://localhost:5783
  weir coap discover coap://224.0.1.187 --interface eth0
  weir coap discover "coap://[ff02::fd%eth0]" --wait 10s --json
  weir coap discover "coap://localhost:5683?rt=block" --json`,
		Args: cli.OneURI,
		RunE: func(cmd *cobra.Command, args []string) error { return runDiscover(cmd, args[0], &f, &group, asJSON) },
	}
	f.add(cmd, false)
	group.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func runDiscover(cmd *cobra.Command, uri string, f *requestFlags, g *groupFlags, asJSON bool) error {
	cfg, err := f.request(cmd, message.GET, uri)
	if err != nil {
		return cli.UsageError(err)
	}
	target, err := client.ParseTarget(uri)
	if err != nil {
		return cli.UsageError(err)
	}
	if cfg.Path = target.Path; len(target.Path) == 0 {
		cfg.Path = []string{".well-known", "core"}
	}
	if target.IsGroup() {
		return runDiscoverGroup(cmd, uri, f, g, cfg.Path, asJSON)
	}
	x, err := client.Do(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	m, err := responseCode(x)
	if err != nil {
		return errors.Join(x.Print(cmd.OutOrStdout()), err)
	}
	links, err := client.ParseLinks(string(m.Payload))
	if err != nil {
		return fmt.Errorf("%s: %w", uri, err)
	}
	if asJSON {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(linksJSON(links))
	}
	return printLinks(cmd.OutOrStdout(), links)
}

func linksJSON(links []client.Link) []v1.CoAPLink {
	out := make([]v1.CoAPLink, 0, len(links))
	for i := range links {
		l := &links[i]
		one := v1.CoAPLink{
			Target: l.Target, Types: strings.Fields(l.Attribute("rt")), Interfaces: strings.Fields(l.Attribute("if")), Formats: []int{},
			Title: l.Attribute("title"), Observable: l.Has("obs"), Link: l.String(),
		}
		for _, word := range strings.Fields(l.Attribute("ct")) {
			if n, err := strconv.ParseUint(word, 10, 16); err == nil {
				one.Formats = append(one.Formats, int(n))
			}
		}
		if n, err := strconv.ParseUint(l.Attribute("sz"), 10, 32); err == nil {
			one.Size = n
		}
		out = append(out, one)
	}
	return out
}

func printLinks(w io.Writer, links []client.Link) error {
	t := terminal.NewTable(w, false)
	fmt.Fprintln(t, "RESOURCE\tTYPE\tINTERFACE\tFORMATS\tSIZE\tOBSERVABLE\tTITLE")
	for i := range links {
		l := &links[i]
		observable := ""
		if l.Has("obs") {
			observable = "yes"
		}
		row := []string{l.Target, l.Attribute("rt"), l.Attribute("if"), l.Formats(), l.Attribute("sz"), observable, l.Attribute("title")}
		for i := range row {
			row[i] = client.Printable(row[i])
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}
