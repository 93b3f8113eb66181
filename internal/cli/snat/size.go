package snat

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/terminal"
)

// size answers what so many connections need.
func (f *snatFlags) size(cmd *cobra.Command, wanted int64) error {
	switch {
	case f.config.Path != "" || f.name != "":
		return cli.UsageError(errors.New("--for: a file says how many connections there are; write a kind and flags, or -c FILE"))
	case wanted < 1 || wanted > snat.MaxConnections:
		return cli.UsageError(fmt.Errorf("--for: %d is not between 1 and %d; write one that is", wanted, snat.MaxConnections))
	}
	need := snat.Need{Connections: wanted}
	given := cmd.Flags().Changed
	if given("nodes") {
		need.Nodes = f.scenario.Nodes
	}
	if given("replicas") {
		need.Replicas = f.scenario.Replicas
	}
	if given("ips") {
		need.IPs = f.stage.IPs
	}
	if given("rate") {
		need.Rate = f.scenario.Traffic.Rate
	}
	out := v1.SNATSizes{Connections: wanted, Rate: need.Rate, Destinations: f.scenario.Destinations}
	possible := false
	for _, spec := range f.ways(f.kinds, given("ports")) {
		wanted := spec
		wanted.Ports, wanted.MaxPorts = max(spec.Ports, 0), max(spec.MaxPorts, 0)
		one := *f
		one.stage = wanted
		s, err := one.byFlags(cmd, spec.Kind)
		if err != nil {
			return err
		}
		s.Path[len(s.Path)-1].Ports, s.Path[len(s.Path)-1].MaxPorts = spec.Ports, spec.MaxPorts
		if spec.Kind == snat.Masquerade || spec.Kind == snat.Ephemeral {
			s.Path[len(s.Path)-1].Ports = wanted.Ports
		}
		size := s.Size(need)
		possible = possible || size.Possible
		out.Ways = append(out.Ways, size)
	}
	var err error
	if f.json {
		err = cli.PrintJSON(cmd.OutOrStdout(), out)
	} else {
		err = writeSizes(cmd.OutOrStdout(), out)
	}
	if err == nil && !possible {
		return &cli.ExitError{Code: cli.ExitFailure}
	}
	return err
}

// ways are the manners of allocation that a question is about: those of one kind, or all.
func (f *snatFlags) ways(args []string, ports bool) []snat.StageSpec {
	kinds := snatKinds()
	if len(args) > 0 {
		kinds = args[:1]
	}
	var all []snat.StageSpec
	for _, kind := range kinds {
		p := f.stage
		p.Kind = snat.Kind(kind)
		if len(args) == 0 && p.Kind != snat.AzureLB {
			p.RulePorts = nil
		}
		if len(args) == 0 && p.Kind != snat.AWSRegional {
			p.Zones = 0
		}
		if len(args) == 0 && p.Kind != snat.GCPNAT {
			p.MaxPorts, p.EndpointIndependent = 0, false
		}
		switch {
		case p.Kind == snat.AzureLB && !ports:
			all = append(all, p)
			p.Ports = snat.Manual
		case p.Kind == snat.GCPNAT && p.MaxPorts == 0 && !ports:
			p.Ports = snat.Manual
			all = append(all, p)
			if p.EndpointIndependent {
				continue // static allocation only
			}
			p.Ports, p.MaxPorts = 0, snat.Dynamic
		}
		all = append(all, p)
	}
	return all
}

func writeSizes(out io.Writer, r v1.SNATSizes) error {
	fmt.Fprintf(out, "%s connections at one time, to %d destination tuple(s)", snat.Group(r.Connections), r.Destinations)
	if r.Rate > 0 {
		fmt.Fprintf(out, ", %.0f new ones/s", r.Rate)
	}
	fmt.Fprint(out, "\n\n")
	w := terminal.NewTable(out, false)
	fmt.Fprintln(w, "WAY\tNODES\tREPLICAS\tPORTS PER NODE\tADDRESSES\tHOLDS\tNEW/S\tFULL FIRST")
	for _, s := range r.Ways {
		if !s.Possible {
			fmt.Fprintf(w, "%s\t–\t\t\t\t\t\tnot possible, see below\n", s.Way)
			continue
		}
		ports, ips, rate := "–", "–", "–"
		if s.Ports > 0 {
			ports = snat.Group(int64(s.Ports))
		}
		if s.MaxPorts > 0 {
			ports += " to " + snat.Group(int64(s.MaxPorts))
		}
		if s.IPs > 0 {
			ips = snat.Group(int64(s.IPs))
		}
		if s.NewPerSecond > 0 {
			rate = fmt.Sprintf("%.0f", s.NewPerSecond)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Way, snat.Group(int64(s.Nodes)), snat.Group(int64(s.Replicas)), ports, ips, snat.Group(s.Ceiling), rate, s.First)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range r.Ways {
		if !s.Possible {
			fmt.Fprintf(out, "\n%s: %s\n", s.Way, s.Why)
			if s.Plan.Remedy != "" {
				fmt.Fprintf(out, "  remedy: %s\n", s.Plan.Remedy)
			}
		}
	}
	if len(r.Ways) > 2 || !r.Ways[0].Possible {
		return nil
	}
	for _, s := range r.Ways {
		for _, warning := range s.Plan.Warnings {
			fmt.Fprintf(out, "\n%s: %s\n", s.Way, warning)
		}
	}
	return nil
}
