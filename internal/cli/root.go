package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/privilege"
)

// NewRoot ties the families together, and the commands about the binary itself.
func NewRoot(families []Family) *cobra.Command {
	var version bool // not cobra's Version: that queries the kernel at every start, and adds -v
	root := &cobra.Command{
		Use:   "weir",
		Short: "Steer and measure layer-4 traffic",
		Long: `Weir keeps a session on its server while the network path under it changes.

It balances by connection id and flow in the kernel, through netfilter queues or in user space (lb, nat). It writes a first
configuration (init), says what a configuration means and where a packet goes (check, explain), and finds what spoils a machine
for it (doctor). It serves CoAP over DTLS with connection ids as one node or a cluster (coap), and relays media as a TURN gateway
(turn). In Kubernetes it serves Gateways (operator). It measures what all that costs (bench), how many TCP connections a path holds (tcp), calculates how many NAT gateways
let through (snat), and which size a fragment table needs (sim). It describes its admin APIs (api). Networks of namespaces to try it all in are in lab. Start with:
weir demo`,
		Example: `  weir demo
  weir nat :5784 localhost:5683 localhost:5684
  weir --version
  source <(weir completion bash)`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          NoSuchCommand,
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			process := SignalsOf(cmd.Context())
			process.Ending.allow(EndTime(cmd))
			if cmd.Name() == cobra.ShellCompRequestCmd {
				if target, _, err := cmd.Root().Find(args[:max(len(args)-1, 0)]); err == nil {
					completeCommand(target, families) // a shell asks
				}
			}
			if privilege.HoldsKeys(cmd.CommandPath()) {
				return process.protectKeys()
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), ReadBuildInfo())
				return err
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&version, "version", false, "print what this binary was built from, as 'weir version' does")
	root.SetFlagErrorFunc(noSuchFlag)
	root.SetHelpFunc(printHelp)
	root.SetHelpCommand(newHelpCommand())
	root.AddCommand(newVersionCommand(), newManCommand(), newAPICommand())
	for _, family := range families {
		root.AddCommand(family.Command())
	}
	addCompletion(root)
	usageArgs(root)
	return root
}

// usageArgs makes wrong arguments of every command below a mistake in usage, as wrong flags are.
func usageArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			if exit := (*ExitError)(nil); err == nil || errors.As(err, &exit) {
				return err
			}
			if !cmd.HasSubCommands() && strings.HasPrefix(err.Error(), "unknown command") { // cobra.NoArgs
				err = fmt.Errorf("%s has no arguments, %q was given", cmd.CommandPath(), args[0])
			}
			return UsageError(err)
		}
	}
	for _, below := range cmd.Commands() {
		usageArgs(below)
	}
}

// NoSuchCommand turns a mistyped command into one error with the nearest names.
func NoSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	message := fmt.Sprintf("no command %q", args[0])
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		message += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return UsageError(errors.New(message))
}

// OneURI is the arguments of a command that needs a URI.
func OneURI(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return UsageError(fmt.Errorf("%d arguments; give one URI such as coaps://localhost:5784/mycontext", len(args)))
	}
	return nil
}
