package snat

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/measuring"
	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/terminal"
)

func newSnatPlanCommand() *cobra.Command {
	var f snatFlags
	var wanted int64
	cmd := &cobra.Command{
		Use:   "plan [KIND | FILE]",
		Short: "Calculate how many connections a path holds, what breaks first, and what helps",
		Long: `Calculate the minimum cut of a path from client processes to servers: connections per node and in all, nodes possible,
the share that each stage uses, which one breaks first and which next, and new connections per second that can go on.

KIND is azure-lb, azure-nat, aws-nat, aws-regional, gcp-nat, masquerade or ephemeral; its path begins with the ephemeral ports of each
replica. Longer paths, and tables of scenarios with measured figures, come from a file.

With --for the question is reversed: the smallest number of nodes, then of ports per node, then of public addresses that hold so
many connections, at --rate if that is given. Values of flags (--nodes, --ports, --ips, --replicas) are fixed, the rest is found.

Exit code 0 if the demand fits (of a file with measured figures: if none differs; with --for: if one way is possible), 1 if not.`,
		Example: `  weir snat plan azure-lb --nodes 2 --ips 2 --ports 8000 --replicas 2 --connections 10000
  weir snat plan azure-lb --nodes 48 --max-nodes 60 --replicas 48 --connections 800
  weir snat plan azure-nat --ips 1 --policy open --rate 2000 --lifetime 1s --replicas 9
  weir snat plan gcp-nat --ips 2 --ports 64 --max-ports 4096 --nodes 20 --replicas 20 --connections 3000
  weir snat plan --for 50000
  weir snat plan azure-lb --for 50000 --nodes 20 --surge-nodes 2
  weir snat plan azure-nat --for 50000 --rate 2000 --lifetime 20s
  weir snat plan -c examples/snat/source-document.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("for") {
				return f.size(cmd, wanted)
			}
			scenarios, err := f.read(cmd)
			if err != nil {
				return err
			}
			return planSnat(cmd, scenarios, f.json)
		},
	}
	f.register(cmd)
	cmd.Flags().Int64Var(&wanted, "for", 0, "say what so many connections at one time need: nodes, ports, addresses; without a KIND, of every vendor")
	return cmd
}

func planSnat(cmd *cobra.Command, scenarios []snat.Scenario, asJSON bool) error {
	cells := make([]snat.Cell, 0, len(scenarios))
	measured, bad := false, false
	for _, s := range scenarios {
		cell, err := s.Cell(cmd.Context())
		if err != nil {
			return measuring.Interrupted(err)
		}
		measured = measured || s.Expect != nil || s.ExpectNodes != nil
		cells = append(cells, cell)
	}
	for _, c := range cells {
		bad = bad || measured && c.Status == snat.Differs || !measured && !c.Plan.Fits
	}
	out := cmd.OutOrStdout()
	var err error
	switch {
	case asJSON && measured:
		err = cli.PrintJSON(out, cells)
	case asJSON:
		plans := make([]snat.Plan, len(cells))
		for i, c := range cells {
			plans[i] = c.Plan
		}
		err = cli.PrintJSON(out, plans)
	case measured:
		err = writeCells(out, cells)
	default:
		for i, c := range cells {
			if i > 0 {
				fmt.Fprintln(out)
			}
			if err = writePlan(out, c.Plan, len(cells) > 1); err != nil {
				break
			}
		}
	}
	if err == nil && bad {
		return &cli.ExitError{Code: cli.ExitFailure}
	}
	return err
}

// writeCells prints measured and planned figures side by side, one table per heading.
func writeCells(out io.Writer, cells []snat.Cell) error {
	w := terminal.NewTable(out, true)
	count := map[string]int{}
	for i, c := range cells {
		if i == 0 || c.Table != cells[i-1].Table {
			if err := w.Flush(); err != nil {
				return err
			}
			if i > 0 {
				fmt.Fprintln(out)
			}
			fmt.Fprintln(out, c.Table)
			fmt.Fprintln(w, "measured\tplanned\texact\tnodes\t\t")
		}
		says, nodes := "", ""
		if c.Expect != nil {
			says = snat.Group(*c.Expect)
		}
		if c.Nodes > 0 {
			nodes = snat.Group(c.Nodes)
		}
		count[c.Status]++
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t  %s\n", says, snat.Group(c.Predicted), snat.Group(c.Exact), nodes, c.Status, c.Scenario)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out, "\nWhy")
	for _, c := range cells {
		fmt.Fprintf(out, "  %s: %s\n    %s\n", c.Table, c.Scenario, c.Reason)
		if c.Seen != nil {
			fmt.Fprintf(out, "    simulated: %s to %s, %.0f on average, %.0f %% of the readings near the measured figure, %d restarts\n",
				snat.Group(c.Seen.Lowest), snat.Group(c.Seen.Peak), c.Seen.Mean, 100*c.Seen.Near, c.Seen.Lives)
		}
	}
	_, err := fmt.Fprintf(out, "\n%d cells: %d agree, %d move, %d differ, %d predicted\n", len(cells),
		count[snat.Agrees], count[snat.Moves], count[snat.Differs], count[snat.Predicted])
	return err
}

func writePlan(out io.Writer, p snat.Plan, named bool) error {
	if named {
		fmt.Fprintln(out, p.Name)
	}
	w := terminal.NewTable(out, false)
	fmt.Fprintln(w, "STAGE\tOF EACH\tPER KEY\tKEYS\tCAPACITY\tUSED\tFULL AT A DEMAND OF")
	for _, st := range p.Stages {
		capacity, full := snat.Group(st.Capacity), snat.Group(st.BreaksAt)
		switch {
		case st.Transient:
			full = "(counts arrivals)"
		case st.BreaksAt == 0:
			capacity, full = "unbounded", "never"
		case st.Pressure > 1:
			full += " !"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%.1f %%\t%s\n", st.Name, st.Level, snat.Group(st.PerKey), snat.Group(st.Keys), capacity, 100*st.Used, full)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nholds     %s of %s connections", snat.Group(p.Holds), snat.Group(p.Demand))
	if p.Holds < p.Demand {
		fmt.Fprintf(out, "; whole replicas: %s with %s", snat.Group(p.WholeReplicas), snat.Group(p.Whole))
	} else if p.Ceiling < snat.MaxConnections {
		fmt.Fprintf(out, "; the path would hold %s", snat.Group(p.Ceiling))
	}
	fmt.Fprintln(out)
	if p.PerNode > 0 {
		fmt.Fprintf(out, "nodes     %s connections each", snat.Group(p.PerNode))
		if p.NodesPossible > 0 {
			fmt.Fprintf(out, "; %s nodes possible", snat.Group(p.NodesPossible))
		}
		if p.NodesNeeded > 0 {
			fmt.Fprintf(out, "; %s needed for whole replicas", snat.Group(p.NodesNeeded))
		}
		fmt.Fprintln(out)
	}
	if p.NewPerSecond > 0 {
		fmt.Fprintf(out, "rate      %.1f new connections/s can go on (%s)\n", p.NewPerSecond, p.RateStage)
	}
	if p.First != "" {
		fmt.Fprintf(out, "first     %s\n", p.First)
	}
	if p.Next != "" {
		fmt.Fprintf(out, "next      %s\n", p.Next)
	}
	fmt.Fprintf(out, "why       %s\n", p.Why)
	if p.Remedy != "" {
		fmt.Fprintf(out, "remedy    %s\n", p.Remedy)
	}
	for _, warning := range p.Warnings {
		fmt.Fprintf(out, "warning   %s\n", warning)
	}
	return nil
}
