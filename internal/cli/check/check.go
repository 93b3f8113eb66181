package check

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/balancing"
	"github.com/weir-lb/weir/internal/cli/files"
	"github.com/weir-lb/weir/internal/cli/status"
	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/coap/oscore"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/announce"
	"github.com/weir-lb/weir/internal/control/announce/bgp"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/control/names"
	"github.com/weir-lb/weir/internal/control/redundancy"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/terminal"
)

// checkResult is what `weir check --json` prints.
type checkResult = v1.CheckResult

// checkError is one thing wrong.
type checkError = v1.CheckError

// allErrors writes several errors, one a line.
type allErrors struct{ error }

func (e allErrors) Error() string {
	var lines []string
	for _, one := range eachError(e.error) {
		lines = append(lines, one.Error())
	}
	return strings.Join(lines, "\nweir: ")
}

func (e allErrors) Unwrap() error { return e.error }

// eachError are the errors of a document, one by one.
func eachError(err error) []error {
	var several config.Errors
	if errors.As(err, &several) {
		return several
	}
	return []error{err}
}

// checkFlags are the flags of `weir check`.
type checkFlags struct {
	file     cli.ConfigFile
	datapath string
	json     bool
}

func newCheckCommand() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file of any part of Weir and show what it means",
		Long: `Check a configuration without running it. Weir detects the kind of the file from its keys.

Load balancer: the file is decoded strictly and compiled as the load balancer does, and the services, addresses and backends
are printed with each backend's share of new flows. TURN gateway, in Weir's or STUNner's format: it is checked with its
certificates, and its listeners and clusters are printed. CoAP node: it is checked with its keys. Files of keys of a CoAP node,
PSK and OSCORE contexts: they are checked without printing a key. Scenarios of weir snat: they are checked, and their names are
printed.

DNS names of backends are looked up here, for 3 s at most; the output says what they resolve to. A name without an answer is a note, no
error: its backends come once it resolves.

Everything that is wrong is printed, one line each, as file:line:column: key: what; remedy. What depends on a value that cannot
be read is checked once that can be.
Exit codes: 0 the file is good, 1 it is not, 2 wrong usage.`,
		Example: `  weir check weir.yaml
  weir check weir.yaml --datapath udp     # also: can the user-space data path do all of it?
  weir check weir.yaml --json | jq .services
  weir check -c gateway.yaml              # of weir turn gateway; the same as weir check gateway.yaml

A service that steers by connection id:

  services:
  - name: coaps
    vips: [{address: 192.0.2.1, protocol: udp, port: 5684}]
    cid: {protocols: [dtls12], layouts: [{length: 6, owner: {offset: 0, bits: 8}}]}
    backends:
    - {name: a, address: 10.0.0.11, port: 5684, nodes: [1]}
    - {name: b, address: 10.0.0.12, port: 5684, nodes: [2]}`,
		RunE: func(cmd *cobra.Command, _ []string) error { return runCheck(cmd, &f) },
	}
	f.file.Add(cmd, "")
	cmd.Args = f.file.Required
	cmd.Flags().StringVar(&f.datapath, "datapath", "", "also check that this data path can do it: ebpf, nfqueue or udp")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

func runCheck(cmd *cobra.Command, f *checkFlags) error {
	caps := lb.CheckCaps()
	if f.datapath != "" {
		var err error
		if caps, err = balancing.Caps(f.datapath); err != nil {
			return cli.UsageError(err)
		}
	}
	result, err := checkFile(f.file.Path, caps)
	if f.json {
		if encodeErr := cli.PrintJSON(cmd.OutOrStdout(), result); encodeErr != nil {
			return encodeErr
		}
		if err != nil {
			return &cli.ExitError{Code: cli.ExitFailure} // the error is in the JSON
		}
		return nil
	}
	if err != nil {
		return allErrors{err}
	}
	for _, warning := range result.Warnings {
		_ = terminal.Prose(cmd.ErrOrStderr(), "warning: "+warning) // the command goes on
	}
	return printChecked(cmd.OutOrStdout(), result)
}

// printChecked writes what a good file means.
func printChecked(out io.Writer, result *checkResult) error {
	switch {
	case result.Gateway != nil:
		return files.PrintGateway(out, result.Gateway)
	case result.Node != "":
		_, err := fmt.Fprintf(out, "configuration of weir coap server: %s\n", result.Node)
		return err
	case result.Keys != "":
		_, err := fmt.Fprintf(out, "keys of weir coap server: %s\n", result.Keys)
		return err
	case len(result.Scenario) > 0:
		_, err := fmt.Fprintf(out, "%d scenarios of weir snat: %s\n", len(result.Scenario), strings.Join(result.Scenario, "; "))
		return err
	}
	if err := errors.Join(status.Services(out, result.Services, result.Tier), printNames(out, result.Names)); err != nil || len(result.Announce) == 0 {
		return err
	}
	_, err := fmt.Fprintf(out, "\nannounced while it can be served: %s\n", strings.Join(result.Announce, ", "))
	return err
}

// checkFile decodes and compiles one file. The result says the same as the error.
func checkFile(path string, caps lb.Caps) (*checkResult, error) {
	result := &checkResult{File: path, Datapath: caps.Name}
	err := checkText(result, caps)
	result.OK = err == nil
	if err != nil {
		for _, one := range eachError(err) {
			entry := checkError{Error: one.Error()}
			var at *config.Error
			if errors.As(one, &at) {
				entry.Line, entry.Column = at.Line, at.Column
			}
			result.Errors = append(result.Errors, entry)
		}
		first := result.Errors[0]
		result.Error, result.Line, result.Column = first.Error, first.Line, first.Column
		if errors.Is(err, os.ErrNotExist) {
			err = cli.UsageError(err)
		}
	}
	return result, err
}

// checkText fills the result with what the file means, up to the first error.
func checkText(result *checkResult, caps lb.Caps) error {
	path := result.File
	text, err := config.Once(path)
	if err != nil {
		return err
	}
	result.Kind = kindOf(text)
	switch result.Kind {
	case kindKubernetes:
		return fmt.Errorf("%s: a Kubernetes manifest, not a file of Weir; check it with kubectl apply --dry-run=server -f %s", path, path)
	case kindNode:
		result.Node, result.Warnings, err = checkNode(path, text)
		return err
	case kindPSK:
		result.Keys, err = node.CheckPSK(path, string(text))
		return err
	case kindOSCORE:
		names, err := oscore.CheckText(path, text)
		result.Keys = "contexts of OSCORE: " + strings.Join(names, ", ")
		return err
	case kindScenarios:
		scenarios, err := files.Scenarios(path, text)
		result.Scenario = files.ScenarioNames(scenarios)
		var usage *cli.ExitError
		if errors.As(err, &usage) {
			err = usage.Err // the file is wrong, not the command line
		}
		return err
	case kindGateway, kindSTUNner:
		plan, err := files.Gateway(path, text)
		if err != nil {
			return err
		}
		summary := plan.Summary()
		result.Gateway, result.Warnings = &summary, plan.Notes
		return plan.Check()
	}
	spec, document, err := config.Decode[lb.Spec](path, text)
	var snapshot *lb.Snapshot
	compile := func() (wrong error) {
		snapshot, wrong = lb.Compile(spec, nil, caps)
		return control.Locate(wrong, document)
	}
	if err != nil {
		return document.Also(err, compile)
	}
	if err := compile(); err != nil {
		return err
	}
	overrides := checkNames(&spec, result)
	if resolved, err := lb.Compile(spec, overrides, caps); err == nil {
		snapshot = resolved
	}
	result.Services, result.Tier = control.Describe(snapshot, overrides), control.DescribeTier(snapshot)
	result.Warnings = append(document.Warnings(), spec.Warnings()...)
	for _, route := range announce.Decide(snapshot, announce.Node{}) {
		result.Announce = append(result.Announce, route.Prefix.String())
	}
	return errors.Join(checkPasswords(snapshot.Announce, document, result), checkSyncKey(snapshot.Sync, document, result))
}

// resolveTimeout bounds how long weir check waits for the answers of resolvers.
const resolveTimeout = 3 * time.Second

// checkNames looks the DNS names of backends up, and returns their addresses for Compile. A name without an answer is no error: the machine
// that runs the load balancer may have another resolver, and there its backends come once the name resolves.
func checkNames(spec *lb.Spec, result *checkResult) *lb.Overrides {
	hosts := spec.Hosts()
	if len(hosts) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	result.Names = names.Once(ctx, hosts)
	addresses := map[string][]netip.Addr{}
	for _, name := range result.Names {
		addresses[name.Name] = name.Addresses
	}
	return (*lb.Overrides)(nil).WithAddresses(addresses)
}

// printNames writes what DNS names resolve to.
func printNames(out io.Writer, resolved []v1.ResolvedName) error {
	if len(resolved) == 0 {
		return nil
	}
	table := terminal.NewTable(out, false)
	fmt.Fprintln(table, "\nHOST\tRESOLVES HERE TO")
	for i := range resolved {
		n := &resolved[i]
		if n.Error != "" {
			fmt.Fprintf(table, "%s\tnote: nothing now, so no backend until it does: %s\n", n.Name, n.Error)
			continue
		}
		addresses := make([]string, len(n.Addresses))
		for j := range addresses {
			addresses[j] = n.Addresses[j].String()
		}
		fmt.Fprintf(table, "%s\t%s\n", n.Name, strings.Join(addresses, " "))
	}
	return table.Flush()
}

// checkSyncKey reads the key that balancers share. The environment of weir lb run may be another one than that of weir check.
func checkSyncKey(settings *lb.Sync, document *config.Document, result *checkResult) error {
	if settings == nil {
		return nil
	}
	_, err := redundancy.Key(settings)
	if err != nil && settings.KeyFile != "" {
		return document.Errorf("sync.key_file", "%v", err)
	}
	if err != nil {
		result.Warnings = append(result.Warnings, fmt.Sprintf("sync.key_env: %v", err))
	}
	return nil
}

// checkPasswords reads the passwords of BGP neighbours. The environment of weir lb run may be another one than that of weir check.
func checkPasswords(settings *lb.Announce, document *config.Document, result *checkResult) error {
	if settings == nil || settings.BGP == nil {
		return nil
	}
	for i := range settings.BGP.Neighbours {
		n := &settings.BGP.Neighbours[i]
		_, err := bgp.Password(n)
		switch {
		case err == nil:
		case n.PasswordEnv != "":
			result.Warnings = append(result.Warnings, fmt.Sprintf("announce.bgp.neighbours[%d]: %v", i, err))
		default:
			return document.Errorf(fmt.Sprintf("announce.bgp.neighbours[%d].password_file", i), "%v", err)
		}
	}
	return nil
}

// Family is weir check.
func Family() cli.Family {
	return cli.Family{Command: newCheckCommand}
}
