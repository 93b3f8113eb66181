package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/tcpscale"
)

// newTCPCommand groups the connection-scale tester. A new subcommand is one line here.
func newTCPCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tcp",
		Short: "Find out how many TCP connections a path holds, and what stands in the way of more",
		Example: `  weir tcp bench --connections 100000
  weir tcp doctor --connections 1000000
  weir tcp server --listen :10000
  weir tcp client --connections 50000 --to 192.0.2.1:10000`,
		Args: cli.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTCPServerCommand(), newTCPClientCommand(), newTCPBenchCommand(), newTCPDoctorCommand(), newTCPStatsCommand(), newTCPWorkerCommand())
	return cmd
}

func newTCPWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "worker",
		Short:   "One event loop of weir tcp server or client: configuration and commands on standard input",
		Hidden:  true,
		Example: `  echo '{"server":{"listen":["127.0.0.1:10000"],"id":"one"}}' | weir tcp worker`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return tcpscale.RunWorker(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

// workerCount is a number of processes; 0 is auto: as many as are needed.
type workerCount int

func (w *workerCount) String() string {
	if *w == 0 {
		return "auto"
	}
	return strconv.Itoa(int(*w))
}

func (w *workerCount) Type() string { return "int" }

func (w *workerCount) Set(text string) error {
	if text == "auto" {
		*w = 0
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1000 {
		return errors.New("write auto, or 1 to 1000")
	}
	*w = workerCount(n)
	return nil
}

// listenAddresses reads --listen: an empty host is all addresses.
func listenAddresses(texts []string) ([]netip.AddrPort, error) {
	var all []netip.AddrPort
	for _, text := range texts {
		if strings.HasPrefix(text, ":") {
			text = "[::]" + text
		}
		a, err := netip.ParseAddrPort(text)
		if err != nil {
			return nil, fmt.Errorf("--listen %q: write :PORT or ADDRESS:PORT", text)
		}
		all = append(all, a)
	}
	return all, nil
}

// targetAddresses resolves --to.
func targetAddresses(ctx context.Context, texts []string) ([]netip.AddrPort, error) {
	if len(texts) == 0 {
		return nil, cli.UsageError(errors.New("no target; name it with --to HOST:PORT"))
	}
	var all []netip.AddrPort
	for _, text := range texts {
		host, port, err := net.SplitHostPort(text)
		number, bad := strconv.ParseUint(port, 10, 16)
		if err != nil || bad != nil || number == 0 {
			return nil, cli.UsageError(fmt.Errorf("--to %q: write HOST:PORT", text))
		}
		addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return nil, fmt.Errorf("--to %s: %w", text, err)
		}
		address := addresses[0]
		for _, a := range addresses { // one family for all, IPv4 where there is one
			if a.Unmap().Is4() {
				address = a
				break
			}
		}
		all = append(all, netip.AddrPortFrom(address.Unmap(), uint16(number)))
		if all[0].Addr().Is4() != address.Unmap().Is4() {
			return nil, cli.UsageError(fmt.Errorf("--to %s is %v: all targets must be of one family", text, address))
		}
	}
	return all, nil
}
