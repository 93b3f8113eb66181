package lb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/balancing"
	"github.com/weir-lb/weir/internal/datapath/nfqueue/rules"
	"github.com/weir-lb/weir/internal/privilege"
)

func newLBRulesCommand() *cobra.Command {
	var f balancing.RulesFlags
	var show, apply, remove, asJSON bool
	cmd := &cobra.Command{
		Use:   "rules FILE [--print | --apply | --remove]",
		Short: "The iptables and routing rules that lead packets to the queue and to backends",
		Long: `Make the rules that the data path nfqueue needs around it: an iptables chain that queues packets to the VIPs, for each
backend's mark a routing rule and a route by way of its address, and a chain that answers packets with a no_backend_mark or
no_service_mark. IPv4 and IPv6.

--print (default) shows them as commands for a shell. --apply shows and makes what is missing, and removes what the file no
longer wants. Applying it twice has no further effect, a change touches nothing else, and after an error all rules are as they
were. --remove removes all of Weir's rules. Rules of others are never changed; those that conflict are named.

A service with 'bypass: true' lets its packets pass while weir is not there; else they are dropped.`,
		Example: `  weir lb rules -c weir.yaml --queue 0:3 --interface eth0
  sudo weir lb rules -c weir.yaml --queue 0:3 --interface eth0 --apply
  sudo weir lb rules --remove`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			modes := 0
			for _, on := range []bool{show, apply, remove} {
				if on {
					modes++
				}
			}
			switch {
			case modes > 1:
				return cli.UsageError(errors.New("--print, --apply and --remove exclude each other"))
			case !remove:
				if err := f.File.Required(cmd, nil); err != nil {
					return err
				}
			}
			if apply || remove {
				if err := privilege.Check(privilege.LBRules); err != nil {
					return err
				}
			}
			if remove {
				return removeRules(cmd.Context(), cmd.OutOrStdout(), &f, asJSON)
			}
			_, plan, err := f.Plan()
			if err != nil {
				return err
			}
			var notes []string
			if apply {
				notes = absent(f.Config.Interfaces)
			}
			return putRules(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), plan, notes, apply, asJSON)
		},
	}
	f.Add(cmd)
	set := cmd.Flags()
	set.BoolVar(&show, "print", false, "print the rules as commands, and change nothing")
	set.BoolVar(&apply, "apply", false, "make what is missing")
	set.BoolVar(&remove, "remove", false, "remove all that is ours")
	set.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// rulesReport is what `weir lb rules --json` prints.
type rulesReport = v1.RulesReport

// absent returns notes on interfaces that do not exist. Rules for them are allowed, but with a wrong name no packet is
// queued.
func absent(names []string) (notes []string) {
	for _, name := range names {
		if _, err := net.InterfaceByName(name); err != nil && !strings.HasSuffix(name, "+") { // iptables takes any ending for it
			notes = append(notes, fmt.Sprintf("interface %s is not there now: until it is, nothing that comes in is queued for it", name))
		}
	}
	return notes
}

func putRules(ctx context.Context, out, errOut io.Writer, plan *rules.Plan, notes []string, apply, asJSON bool) error {
	report := rulesReport{Commands: plan.Commands(), Notes: append(notes, plan.Notes()...)}
	if apply {
		changes, err := rules.Inspect(ctx, plan)
		if err != nil {
			return err
		}
		report.Commands = changes
	}
	if !asJSON {
		for _, note := range report.Notes {
			fmt.Fprintln(errOut, "note:", note)
		}
		for _, line := range report.Commands {
			fmt.Fprintln(out, line)
		}
	}
	if apply {
		changes, err := rules.Apply(ctx, plan)
		if err != nil {
			return err
		}
		report.Commands, report.Changed = changes, len(changes) > 0
		if !asJSON {
			fmt.Fprintln(errOut, changed(changes))
		}
	}
	if asJSON {
		return printRules(out, report)
	}
	return nil
}

// printRules writes it as JSON; no commands are an empty list.
func printRules(out io.Writer, r rulesReport) error {
	r.Commands = append([]string{}, r.Commands...)
	return cli.PrintJSON(out, r)
}

func removeRules(ctx context.Context, out io.Writer, f *balancing.RulesFlags, asJSON bool) error {
	c, err := f.Rules()
	if err != nil {
		return err
	}
	changes, err := rules.Remove(ctx, c)
	if err != nil {
		return err
	}
	if asJSON {
		return printRules(out, rulesReport{Commands: changes, Changed: len(changes) > 0})
	}
	for _, line := range changes {
		fmt.Fprintln(out, line)
	}
	fmt.Fprintln(out, "# "+changed(changes))
	return nil
}

func changed(changes []string) string {
	if len(changes) == 0 {
		return "nothing to change"
	}
	if len(changes) == 1 {
		return "1 change made"
	}
	return fmt.Sprintf("%d changes made", len(changes))
}
