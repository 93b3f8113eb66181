package snat

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/files"
	"github.com/weir-lb/weir/internal/keyerror"
	"github.com/weir-lb/weir/internal/snat"
	"github.com/weir-lb/weir/internal/terminal"
)

func newSnatCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snat",
		Short: "Calculate how many connections NAT gateways, load balancers and hosts let through",
		Long: `Say, before anyone pays for a cluster, how many outbound connections a path holds: by arithmetic (plan), or by
replaying them in virtual time (simulate); or count it on a path of network namespaces (lab). The vendors' figures are in a
table with dates and sources (rules).`,
		Example: `  weir snat plan azure-lb --nodes 2 --ips 2 --ports 8000 --replicas 2
  weir snat simulate azure-nat --ips 1 --policy open --rate 1500 --lifetime 1s --report churn.html
  weir snat rules`,
		Args: cli.NoSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(newSnatPlanCommand(), newSnatSimulateCommand(), newSnatLabCommand(), newSnatRulesCommand())
	return cmd
}

// snatFlags are a scenario by flags, or the file that has it.
type snatFlags struct {
	scenario       snat.Scenario
	stage          snat.StageSpec
	fin, rst, idle time.Duration
	masquerade     bool
	with           []string
	config         cli.ConfigFile
	kinds          []string // the argument, if it is a kind
	name           string
	json           bool
}

// snatKinds are the stages that a path by flags can be about.
func snatKinds() []string {
	return []string{string(snat.AzureLB), string(snat.AzureNAT), string(snat.AWSNAT), string(snat.AWSRegional), string(snat.GCPNAT), string(snat.Masquerade), string(snat.Ephemeral)}
}

func (f *snatFlags) register(cmd *cobra.Command) {
	s, t, p, flags := &f.scenario, &f.scenario.Traffic, &f.stage, cmd.Flags()
	f.config.Add(cmd, " (YAML) with scenarios, instead of a KIND and the flags")
	cmd.Args, cmd.ValidArgsFunction = f.args, completeSnat
	flags.StringVar(&f.name, "scenario", "", "of the file, only the scenario of this name")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.IntVar(&s.Nodes, "nodes", 1, "client nodes")
	flags.IntVar(&s.MaxNodes, "max-nodes", 0, "the autoscaler's limit (0: --nodes)")
	flags.IntVar(&s.SurgeNodes, "surge-nodes", 0, "extra nodes during an upgrade")
	flags.IntVar(&s.Replicas, "replicas", 1, "client processes, in all")
	flags.Int64Var(&s.Connections, "connections", 10_000, "connections that each replica wants")
	flags.StringVar((*string)(&s.Protocol), "protocol", "tcp", "tcp, or udp: flows that end in silence")
	flags.IntVar(&s.Destinations, "destinations", 1, "destination tuples (address, port) that they are spread over")
	flags.IntVar(&s.DestinationIPs, "destination-ips", 0, "addresses that these tuples have (0: one each); Azure's balancer counts udp by address")
	flags.IntVar(&p.IPs, "ips", 1, "public addresses")
	flags.IntVar(&p.Zones, "zones", 0, "aws-regional: Availability Zones with --ips addresses each, the nodes spread evenly (0: 1)")
	flags.IntVar(&p.Ports, "ports", 0, "ports per node; of masquerade and ephemeral the range (0: the vendor's default)")
	flags.IntVar(&p.MaxPorts, "max-ports", 0, "gcp-nat: allocate dynamically, up to this many ports per VM")
	flags.BoolVar(&p.EndpointIndependent, "endpoint-independent", false, "gcp-nat: endpoint-independent mapping")
	flags.IntSliceVar(&p.RulePorts, "rule-ports", nil, "azure-lb: ports of balancing and inbound NAT rules on the outbound address")
	flags.BoolVar(&f.masquerade, "masquerade", false, "the node hides its replicas behind its own address first")
	flags.StringSliceVar(&f.with, "with", nil, "further stages of hosts, KIND or KIND=LIMIT: files, conntrack, vm-flows, memory; of servers server-files and so on")
	cli.DurationVar(flags, &f.fin, "hold-fin", 0, "ports rest so long after FIN (unset: the vendor's)")
	cli.DurationVar(flags, &f.rst, "hold-rst", 0, "ports rest so long after RST (unset: the vendor's)")
	cli.DurationVar(flags, &f.idle, "idle-timeout", 0, "abandoned connections are forgotten after (unset: the vendor's)")
	flags.StringVar((*string)(&t.Policy), "policy", "keep", "keep (replicas keep their connections), open (connections arrive at a rate) or original (the original tester)")
	flags.Float64Var(&t.Rate, "rate", 1000, "new connections per second: of policy open in all, otherwise per replica")
	flags.IntVar(&t.Burst, "burst", 0, "policy open: this many more at one moment")
	cli.DurationVar(flags, &t.BurstEvery, "burst-every", 0, "policy open: so often")
	cli.DurationVar(flags, &t.Lifetime, "lifetime", 0, "mean lifetime of a connection (0: for ever; in a plan of rates: closed at once)")
	flags.Float64Var(&t.RST, "rst", 0, "share of connections closed by RST instead of FIN")
	flags.Float64Var(&t.Abandoned, "abandoned", 0, "share of connections that neither side closes")
}

// args reads the argument: a KIND, or the FILE that -c may name too, which has a dot or a slash in its name.
func (f *snatFlags) args(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && !strings.ContainsAny(args[0], "./") {
		f.kinds = args
		return nil
	}
	return f.config.Args(cmd, args)
}

// completeSnat completes the argument: a kind, or a file where a dot or a slash is typed.
func completeSnat(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) > 0:
		return nil, cli.NoFiles
	case strings.ContainsAny(typed, "./"):
		return cli.Configurations()(cmd, args, typed)
	}
	return cli.BeginningWith(snatKinds(), typed), cli.NoFiles
}

// read returns the scenarios, with defaults and valid. An error is the user's.
func (f *snatFlags) read(cmd *cobra.Command) ([]snat.Scenario, error) {
	if (f.config.Path == "") == (len(f.kinds) == 0) {
		return nil, cli.UsageError(fmt.Errorf("write either a kind (%s) or -c FILE", strings.Join(snatKinds(), ", ")))
	}
	if f.config.Path != "" {
		return f.readFile(cmd)
	}
	if f.name != "" {
		return nil, cli.UsageError(errors.New("--scenario names one of a file: write -c FILE too"))
	}
	s, err := f.byFlags(cmd, snat.Kind(f.kinds[0]))
	if err != nil {
		return nil, err
	}
	return []snat.Scenario{s}, nil
}

// byFlags is the scenario that the flags say, about one kind of stage, which is the last of its path.
func (f *snatFlags) byFlags(cmd *cobra.Command, kind snat.Kind) (snat.Scenario, error) {
	for _, name := range []string{"nodes", "replicas", "connections", "destinations", "ips", "rate", "duration"} {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Changed && strings.Trim(flag.Value.String(), "0s") == "" {
			return snat.Scenario{}, cli.UsageError(fmt.Errorf("--%s: %s is none; write a number above 0", name, flag.Value))
		}
	}
	if err := f.knows(cmd, kind); err != nil {
		return snat.Scenario{}, cli.UsageError(err)
	}
	f.hold(cmd)
	s, p := f.scenario, f.stage
	p.Kind = kind
	for _, text := range f.with {
		stage, err := hostStage(text)
		if err != nil {
			return s, cli.UsageError(err)
		}
		s.Path = append(s.Path, stage)
	}
	if kind != snat.Ephemeral {
		s.Path = append(s.Path, snat.StageSpec{Kind: snat.Ephemeral})
	}
	if f.masquerade && kind != snat.Masquerade {
		s.Path = append(s.Path, snat.StageSpec{Kind: snat.Masquerade})
	}
	s.Path = append(s.Path, p)
	s.Name = string(kind)
	s = s.WithDefaults()
	if err := s.Validate(); err != nil {
		return s, cli.UsageError(asFlag(err))
	}
	return s, nil
}

// knows refuses settings that mean nothing to the kind, instead of a plan that does not have them.
func (f *snatFlags) knows(cmd *cobra.Command, kind snat.Kind) error {
	for _, of := range []struct {
		flag  string
		kinds []snat.Kind
	}{
		{"ips", []snat.Kind{snat.AzureLB, snat.AzureNAT, snat.AWSNAT, snat.AWSRegional, snat.GCPNAT, snat.Ephemeral}},
		{"zones", []snat.Kind{snat.AWSRegional}},
		{"ports", []snat.Kind{snat.AzureLB, snat.GCPNAT, snat.Masquerade, snat.Ephemeral}},
		{"rule-ports", []snat.Kind{snat.AzureLB}},
		{"max-ports", []snat.Kind{snat.GCPNAT}},
		{"endpoint-independent", []snat.Kind{snat.GCPNAT}},
	} {
		if cmd.Flags().Changed(of.flag) && !slices.Contains(of.kinds, kind) {
			var names []string
			for _, k := range of.kinds {
				names = append(names, string(k))
			}
			return fmt.Errorf("--%s: %s has no such setting; leave it out (it is of %s)", of.flag, kind, strings.Join(names, ", "))
		}
	}
	return nil
}

// hostStage reads an element of --with: conntrack, files=20000, server-memory=8000000000.
func hostStage(text string) (snat.StageSpec, error) {
	kind, limit, limited := strings.Cut(text, "=")
	p := snat.StageSpec{}
	kind, server := strings.CutPrefix(kind, "server-")
	if server {
		p.Side = "server"
	}
	p.Kind = snat.Kind(kind)
	if !slices.Contains([]snat.Kind{snat.Files, snat.Conntrack, snat.VMFlows, snat.Memory}, p.Kind) {
		return p, fmt.Errorf("--with: %q is no stage of a host; write files, conntrack, vm-flows or memory, or server- and one of them", text)
	}
	if !limited && p.Kind != snat.Memory {
		return p, nil
	}
	n, err := strconv.ParseInt(limit, 10, 64)
	if err != nil || n < 1 {
		return p, fmt.Errorf("--with: %q has no limit above 0; write one, such as %s=20000", text, kind)
	}
	p.Limit = n
	return p, nil
}

// hold passes on the times that were given; zero is a time too.
func (f *snatFlags) hold(cmd *cobra.Command) {
	for name, set := range map[string]func(){
		"hold-fin": func() { f.stage.HoldFIN = &f.fin }, "hold-rst": func() { f.stage.HoldRST = &f.rst }, "idle-timeout": func() { f.stage.Idle = &f.idle },
	} {
		if cmd.Flags().Changed(name) {
			set()
		}
	}
}

// asFlag turns a key's error into a flag's: "path[1].max_ports: …" is "--max-ports: …".
func asFlag(err error) error {
	var wrong *keyerror.Error
	if !errors.As(err, &wrong) {
		return err
	}
	key := wrong.Key[strings.LastIndexByte(wrong.Key, '.')+1:]
	if key == "kind" {
		return wrong.Err
	}
	return fmt.Errorf("--%s: %w", strings.ReplaceAll(key, "_", "-"), wrong.Err)
}

func (f *snatFlags) readFile(cmd *cobra.Command) ([]snat.Scenario, error) {
	var extra []string
	for _, name := range snatByFlags() {
		if cmd.Flags().Changed(name) {
			extra = append(extra, "--"+name)
		}
	}
	if len(extra) > 0 {
		return nil, cli.UsageError(fmt.Errorf("%s: the file says it; write a kind and flags, or -c FILE", strings.Join(extra, ", ")))
	}
	all, err := files.ReadScenarios(f.config.Path)
	if err != nil {
		return nil, err
	}
	if f.name == "" {
		return all, nil
	}
	var named []snat.Scenario
	for _, s := range all {
		if s.Name == f.name || s.Table+": "+s.Name == f.name {
			named = append(named, s)
		}
	}
	if len(named) == 0 {
		return nil, cli.UsageError(fmt.Errorf("--scenario: %s has none of the name %q; it has: %s", f.config.Path, f.name, strings.Join(files.ScenarioNames(all), "; ")))
	}
	return named, nil
}

// snatByFlags are the flags that a file replaces.
func snatByFlags() []string {
	return []string{
		"nodes", "max-nodes", "surge-nodes", "replicas", "connections", "protocol", "destinations", "destination-ips", "ips", "ports", "max-ports", "endpoint-independent",
		"rule-ports", "masquerade", "with", "hold-fin", "hold-rst", "idle-timeout", "rate", "burst", "burst-every", "lifetime", "rst", "abandoned",
		"spread", "heartbeat", "validate", "balance",
	}
}

func newSnatRulesCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "rules",
		Short:   "Print the vendors' figures that plans are made of, with date and source",
		Example: "  weir snat rules\n  weir snat rules --json | jq -r '.[] | [.vendor, .rule, .value] | @tsv'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rules := snat.Rules()
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), rules)
			}
			w := terminal.NewTable(cmd.OutOrStdout(), false)
			fmt.Fprintln(w, "VENDOR\tRULE\tVALUE\tUNIT\tBASIS\tDATE\tSOURCE")
			for _, r := range rules {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Vendor, r.Rule, snat.Group(r.Value), r.Unit, r.Basis, r.Date, strings.TrimSpace(r.Title+" "+r.URL))
			}
			return w.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
