package balancing

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/datapath/nfqueue/rules"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// RulesFlags describe the rules around the queue, for `weir lb rules` and `weir doctor`.
type RulesFlags struct {
	File   cli.ConfigFile
	Config rules.Config // without the queues
	queues string
}

// Add adds the flags to a command.
func (f *RulesFlags) Add(cmd *cobra.Command) {
	set := cmd.Flags()
	f.File.Add(cmd, " (YAML; see weir check)")
	cmd.Args = f.File.Args
	set.StringVar(&f.queues, "queue", "0", "queues that weir serves, such as 0 or 0:3, as in weir lb run")
	set.StringSliceVarP(&f.Config.Interfaces, "interface", "i", nil, "interfaces that clients' packets come in on (default all)")
	set.BoolVar(&f.Config.Unmarked, "unmarked", false, "queue only packets without a mark: for weir lb run --fast, whose program has marked the others")
	set.BoolVar(&f.Config.Fragments, "fragments", false, "the last queue takes the fragments and nothing else: a flood of them does not fill the others")
	set.BoolVar(&f.Config.Local, "local", false, "serve clients on this machine too")
	set.StringVar(&f.Config.Chain, "chain", rules.DefaultChain, "name of our chain in the tables mangle and filter")
	set.IntVar(&f.Config.Priority, "priority", rules.DefaultPriority, "priority of our routing rules")
	set.Uint32Var(&f.Config.TableBase, "table-base", 0, "added to a mark, gives the number of its routing table")
	set.IntVar(&f.Config.Protocol, "route-protocol", rules.DefaultProtocol, "protocol number that marks routing rules and routes as ours")
	cli.OldFlag(cmd, "protocol", "", "route-protocol")
}

// Snapshot reads and compiles the configuration. Its errors are the user's.
func (f *RulesFlags) Snapshot() (*lb.Snapshot, error) {
	text, err := config.Once(f.File.Path)
	if err != nil {
		return nil, cli.UsageError(err)
	}
	spec, document, err := config.Decode[lb.Spec](f.File.Path, text)
	if err != nil {
		return nil, cli.UsageError(err)
	}
	snapshot, err := lb.Compile(spec, nil, lb.AllCaps())
	if err != nil {
		return nil, cli.UsageError(control.Locate(err, document))
	}
	return snapshot, nil
}

// Plan reads the configuration and makes its rules. Its errors are the user's.
func (f *RulesFlags) Plan() (*lb.Snapshot, *rules.Plan, error) {
	c, err := f.Rules()
	if err != nil {
		return nil, nil, err
	}
	snapshot, err := f.Snapshot()
	if err != nil {
		return nil, nil, err
	}
	plan, err := rules.Make(snapshot, c)
	if err != nil {
		return nil, nil, cli.UsageError(fmt.Errorf("%s: %w", f.File.Path, err))
	}
	return snapshot, plan, nil
}

// Rules is the configuration with the queues read.
func (f *RulesFlags) Rules() (rules.Config, error) {
	c := f.Config
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
