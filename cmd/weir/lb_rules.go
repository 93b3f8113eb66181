package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/datapath/nfqueue/rules"
	"github.com/weir-lb/weir/internal/privilege"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// rulesFlags describe the rules around the queue, for `weir lb rules` and `weir doctor`.
type rulesFlags struct {
	file   cli.ConfigFile
	queues string
	config rules.Config
}

func (f *rulesFlags) add(cmd *cobra.Command) {
	set := cmd.Flags()
	f.file.Add(cmd, " (YAML; see weir check)")
	cmd.Args = f.file.Args
	set.StringVar(&f.queues, "queue", "0", "queues that weir serves, such as 0 or 0:3, as in weir lb run")
	set.StringSliceVarP(&f.config.Interfaces, "interface", "i", nil, "interfaces that clients' packets come in on (default all)")
	set.BoolVar(&f.config.Unmarked, "unmarked", false, "queue only packets without a mark: for weir lb run --fast, whose program has marked the others")
	set.BoolVar(&f.config.Fragments, "fragments", false, "the last queue takes the fragments and nothing else: a flood of them does not fill the others")
	set.BoolVar(&f.config.Local, "local", false, "serve clients on this machine too")
	set.StringVar(&f.config.Chain, "chain", rules.DefaultChain, "name of our chain in the tables mangle and filter")
	set.IntVar(&f.config.Priority, "priority", rules.DefaultPriority, "priority of our routing rules")
	set.Uint32Var(&f.config.TableBase, "table-base", 0, "added to a mark, gives the number of its routing table")
	set.IntVar(&f.config.Protocol, "route-protocol", rules.DefaultProtocol, "protocol number that marks routing rules and routes as ours")
	cli.OldFlag(cmd, "protocol", "", "route-protocol")
}

// snapshot reads and compiles the configuration. Its errors are the user's.
func (f *rulesFlags) snapshot() (*lb.Snapshot, error) {
	text, err := config.Once(f.file.Path)
	if err != nil {
		return nil, cli.UsageError(err)
	}
	spec, document, err := config.Decode[lb.Spec](f.file.Path, text)
	if err != nil {
		return nil, cli.UsageError(err)
	}
	snapshot, err := lb.Compile(spec, nil, lb.AllCaps())
	if err != nil {
		return nil, cli.UsageError(control.Locate(err, document))
	}
	return snapshot, nil
}

// plan reads the configuration and makes its rules. Its errors are the user's.
func (f *rulesFlags) plan() (*lb.Snapshot, *rules.Plan, error) {
	c, err := f.rules()
	if err != nil {
		return nil, nil, err
	}
	snapshot, err := f.snapshot()
	if err != nil {
		return nil, nil, err
	}
	plan, err := rules.Make(snapshot, c)
	if err != nil {
		return nil, nil, cli.UsageError(fmt.Errorf("%s: %w", f.file.Path, err))
	}
	return snapshot, plan, nil
}

// rules is the configuration with the queues read.
func (f *rulesFlags) rules() (rules.Config, error) {
	c := f.config
	first, last, ranged := strings.Cut(f.queues, ":")
	if !ranged {
		last = first
	}
	a, err1 := strconv.ParseUint(first, 10, 16)
	b, err2 := strconv.ParseUint(last, 10, 16)
	if err1 != nil || err2 != nil || a > b {
		return c, cli.UsageError(fmt.Errorf("--queue %q: write a number such as 2, or first:last such as 0:3", f.queues))
	}
	c.First, c.Count = uint16(a), int(b-a)+1
	return c, nil
}

func newLBRulesCommand() *cobra.Command {
	var f rulesFlags
	var show, apply, remove, asJSON bool
	cmd := &cobra.Command{
		Use:   "rules FILE [--print | --apply | --remove]",
		Short: "The iptables and routing rules that lead packets to the queue and to backends",
		Long: `Make the rules that the data path nfqueue needs around it: an iptables chain that queues packets to the VIPs, for each
backend's mark a routing rule and a route by way of its address, and a chain that answers packets with a no_backend_mark or
no_service_mark. IPv4 and IPv6.

--print (default) shows them as commands for a shell. --apply shows and makes what is missing, and removes what the file no
longer wants: twice is once, a change touches nothing else, and after an error all is as it was. --remove takes away all that
is ours. Rules of others are never changed; those in the way are named.

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
				if err := f.file.Required(cmd, nil); err != nil {
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
			_, plan, err := f.plan()
			if err != nil {
				return err
			}
			var notes []string
			if apply {
				notes = absent(f.config.Interfaces)
			}
			return putRules(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), plan, notes, apply, asJSON)
		},
	}
	f.add(cmd)
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

func removeRules(ctx context.Context, out io.Writer, f *rulesFlags, asJSON bool) error {
	c, err := f.rules()
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
