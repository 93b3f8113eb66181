package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/testbed/netlab"
)

func newLabCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Networks of namespaces to try things in",
		Long: `A lab is a network of Linux network namespaces on this machine: clients, routers, balancers, backends.
Nothing outside the namespaces is touched. Needs root.

Labs:
  ` + strings.ReplaceAll(strings.Join(netlab.Names(), "\n  "), "\t", ": "),
		Example: `  sudo weir lab up dsr
  sudo weir lab exec dsr zone0 -- ip route
  sudo weir lab down dsr`,
		Args: cli.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLabUpCommand(), newLabConfigCommand(), newLabExecCommand(), newLabListCommand(), newLabDownCommand())
	return cmd
}

func newLabUpCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "up LAB",
		Short: "Build a lab that stays until it is taken down",
		Example: `  sudo weir lab up dsr
  sudo weir lab up cluster --json`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: labNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			topology, err := netlab.Named(args[0])
			if err != nil {
				return cli.UsageError(err)
			}
			if err := privilege.Check(privilege.LabUp); err != nil {
				return err
			}
			lab, err := netlab.Up(topology, netlab.Keep())
			if errors.Is(err, os.ErrExist) {
				return fmt.Errorf("lab %s is up already; weir lab down %[1]s removes it", topology.Name)
			}
			if err != nil {
				return err
			}
			defer lab.Close()
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(describeLab(lab))
			}
			return printLab(cmd.OutOrStdout(), lab)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newLabConfigCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "config LAB",
		Short: "Print a configuration for weir lb run in a lab's balancer",
		Long:  "Print a configuration for weir lb run in the balancer of a lab: " + strings.Join(configured(), ", ") + ". The other labs have none of their own.",
		Example: `  weir lab config nfqueue > nfqueue.yaml
  sudo weir lab exec nfqueue balancer -- weir lb run -c nfqueue.yaml --datapath nfqueue`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: labNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := netlab.Named(args[0]); err != nil {
				return cli.UsageError(err)
			}
			text := netlab.Config(args[0])
			if text == "" {
				return fmt.Errorf("lab %s has no configuration of its own; see the examples", args[0])
			}
			_, err := io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
}

// configured are the labs with a configuration.
func configured() (names []string) {
	for _, name := range netlab.Names() {
		if name, _, _ = strings.Cut(name, "\t"); netlab.Config(name) != "" {
			names = append(names, name)
		}
	}
	return names
}

func newLabExecCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "exec LAB NAMESPACE -- PROGRAM [ARGUMENT...]",
		Short: "Run a program inside a namespace of a lab",
		Example: `  sudo weir lab exec dsr zone1 -- iperf -s -p 23 -B 10.0.0.1
  sudo weir lab exec cluster client1 -- bash`,
		Args:              cobra.MinimumNArgs(3),
		ValidArgsFunction: labNamespaces,
		RunE: func(_ *cobra.Command, args []string) error {
			topology, err := netlab.Named(args[0])
			if err != nil {
				return cli.UsageError(err)
			}
			if err := privilege.Check(privilege.LabExec); err != nil {
				return err
			}
			lab, err := netlab.Open(topology)
			if err != nil {
				return fmt.Errorf("%w; weir lab up %s builds it", err, args[0])
			}
			defer lab.Close()
			host, ok := lab.Find(args[1])
			if !ok {
				return cli.UsageError(fmt.Errorf("lab %s has no namespace %q; it has %s", args[0], args[1], strings.Join(namespaceNames(topology), ", ")))
			}
			path, err := exec.LookPath(args[2])
			if err != nil {
				return err
			}
			// The program takes the place of this process: its id, its signals, its exit code.
			return host.Do(func() error { return fmt.Errorf("run %s: %w", path, syscall.Exec(path, args[2:], os.Environ())) })
		},
	}
}

func newLabListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the labs that are up",
		Example: `  weir lab list
  weir lab list --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names, err := netlab.Kept()
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(append([]string{}, names...))
			}
			for _, name := range names {
				fmt.Fprintln(cmd.OutOrStdout(), name)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newLabDownCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "down LAB",
		Short:             "Take a lab down and end the programs inside",
		Example:           `  sudo weir lab down dsr`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: keptLabs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := privilege.Check(privilege.LabDown); err != nil {
				return err
			}
			removed, err := netlab.Remove(args[0])
			if err != nil {
				return err
			}
			if len(removed) == 0 {
				return fmt.Errorf("lab %s is not up", args[0])
			}
			fmt.Fprintf(cmd.OutOrStdout(), "removed %d namespaces\n", len(removed))
			return nil
		},
	}
}

// labJSON is what `weir lab up --json` prints.
type labJSON struct {
	Name       string             `json:"name"`
	Namespaces []labNamespaceJSON `json:"namespaces"`
}

type labNamespaceJSON struct {
	Name       string                    `json:"name"`
	NetNS      string                    `json:"netns"` // for ip netns exec
	Interfaces map[string][]netip.Prefix `json:"interfaces"`
}

func describeLab(lab *netlab.Lab) labJSON {
	topology := lab.Topology()
	described := labJSON{Name: topology.Name}
	for _, ns := range topology.Namespaces {
		interfaces := map[string][]netip.Prefix{}
		add := func(name string, addresses []netip.Prefix) {
			interfaces[name] = append([]netip.Prefix{}, addresses...)
		}
		if len(ns.Loopback) > 0 {
			add("lo", ns.Loopback)
		}
		for _, bridge := range ns.Bridges {
			add(bridge.Name, bridge.Addresses)
		}
		for _, macvlan := range ns.Macvlans {
			add(macvlan.Name, macvlan.Addresses)
		}
		for _, link := range topology.Links {
			for _, end := range []netlab.End{link.A, link.B} {
				if end.Namespace == ns.Name {
					add(end.Name, end.Addresses)
				}
			}
		}
		described.Namespaces = append(described.Namespaces, labNamespaceJSON{ns.Name, lab.Namespace(ns.Name).NetNS(), interfaces})
	}
	return described
}

func printLab(out io.Writer, lab *netlab.Lab) error {
	table := terminal.NewTable(out, false)
	fmt.Fprintln(table, "NAMESPACE\tINTERFACE\tADDRESSES\tIP NETNS NAME")
	for _, ns := range describeLab(lab).Namespaces {
		for _, name := range slices.Sorted(maps.Keys(ns.Interfaces)) {
			addresses := strings.Trim(fmt.Sprint(ns.Interfaces[name]), "[]")
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", ns.Name, name, addresses, ns.NetNS)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	name := lab.Topology().Name
	if netlab.Config(name) != "" {
		fmt.Fprintf(out, "\nConfigure its balancer: weir lab config %s > %[1]s.yaml", name)
	}
	_, err := fmt.Fprintf(out, "\nRun something inside: weir lab exec %s NAMESPACE -- PROGRAM\nTake it down:         weir lab down %[1]s\n", name)
	return err
}

func namespaceNames(topology netlab.Topology) []string {
	var names []string
	for _, ns := range topology.Namespaces {
		names = append(names, ns.Name)
	}
	return names
}

// labNames completes the first argument with the topologies that exist.
func labNames(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cli.NoFiles
	}
	return cli.BeginningWith(netlab.Names(), typed), cli.NoFiles
}

// keptLabs completes the first argument with the labs that are up.
func keptLabs(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	names, err := netlab.Kept()
	switch {
	case err != nil:
		return cobra.AppendActiveHelp(nil, err.Error()), cli.NoFiles
	case len(names) == 0 && len(args) == 0:
		return cobra.AppendActiveHelp(nil, "no lab is up; weir lab up LAB builds one"), cli.NoFiles
	case len(args) > 0:
		return nil, cli.NoFiles
	}
	return cli.BeginningWith(names, typed), cli.NoFiles
}

// labNamespaces completes a lab that is up, one of its namespaces, and a command line.
func labNamespaces(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return keptLabs(cmd, args, typed)
	case 1:
		topology, err := netlab.Named(args[0])
		if err != nil {
			return cobra.AppendActiveHelp(nil, err.Error()), cli.NoFiles
		}
		return cli.BeginningWith(namespaceNames(topology), typed), cli.NoFiles
	}
	return nil, cli.AnyFile
}

// Family is weir lab.
func Family() cli.Family {
	return cli.Family{Command: newLabCommand}
}
