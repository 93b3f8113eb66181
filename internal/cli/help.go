package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/terminal"
)

func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND...]",
		Short:   "Help about any command",
		Long:    "Print what --help of a command prints.",
		Example: "  weir help lb run",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, start string) (names []string, _ cobra.ShellCompDirective) {
			if about, rest, err := cmd.Root().Find(args); err == nil && len(rest) == 0 {
				for _, below := range about.Commands() {
					if below.IsAvailableCommand() && strings.HasPrefix(below.Name(), start) {
						names = append(names, cobra.CompletionWithDesc(below.Name(), below.Short))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return UsageError(err)
			}
			if len(rest) > 0 {
				return NoSuchCommand(about, rest)
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		},
	}
}

// addCompletion adds cobra's commands that write a shell's script, with an example for each. Cobra's own would write to where
// root writes at this moment.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	all, _, _ := root.Find([]string{"completion"})
	all.Example = "  source <(weir completion bash)   # needs the package bash-completion"
	for _, shell := range all.Commands() {
		name := shell.Name()
		switch name {
		case "fish":
			shell.Example = "  weir completion fish | source"
		case "powershell":
			shell.Example = "  weir completion powershell | Out-String | Invoke-Expression"
		default:
			shell.Example = "  source <(weir completion " + name + ")"
		}
		shell.RunE = func(cmd *cobra.Command, _ []string) error {
			plain, err := cmd.Flags().GetBool("no-descriptions")
			if err != nil {
				return err
			}
			return writeCompletion(cmd.Root(), name, !plain, cmd.OutOrStdout())
		}
	}
}

func writeCompletion(root *cobra.Command, shell string, described bool, out io.Writer) error {
	switch {
	case shell == "bash":
		return root.GenBashCompletionV2(out, described)
	case shell == "fish":
		return root.GenFishCompletion(out, described)
	case shell == "zsh" && described:
		return root.GenZshCompletion(out)
	case shell == "zsh":
		return root.GenZshCompletionNoDesc(out)
	case described:
		return root.GenPowerShellCompletionWithDesc(out)
	}
	return root.GenPowerShellCompletion(out)
}

// printHelp prints what a command is for and how it is used. On a terminal that is too narrow for a line, sentences and the
// explanations of flags are filled to its width; examples are left whole, to be copied.
func printHelp(cmd *cobra.Command, _ []string) {
	out := cmd.OutOrStdout()
	usage := cmd.UsageString()
	if width := terminal.Width(out); width > 0 {
		for _, flags := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.InheritedFlags()} {
			if text := strings.TrimSpace(flags.FlagUsages()); text != "" {
				usage = strings.Replace(usage, text, strings.TrimSpace(flags.FlagUsagesWrapped(width)), 1)
			}
		}
	}
	before, rest, found := strings.Cut(usage, "Examples:\n")
	examples, after, _ := strings.Cut(rest, "\n\n")
	err := terminal.Prose(out, strings.TrimSpace(orShort(cmd))+"\n")
	if err == nil && found {
		err = terminal.Prose(out, before+"Examples:")
		fmt.Fprintln(out, examples+"\n")
		usage = after
	}
	if err == nil {
		err = terminal.Prose(out, strings.TrimSuffix(usage, "\n"))
	}
	if err != nil {
		cmd.PrintErrln(err)
	}
}

// noSuchFlag adds the nearest flag to the error about an unknown one.
func noSuchFlag(cmd *cobra.Command, err error) error {
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			if !flag.Hidden {
				names = append(names, flag.Name)
			}
		})
		slices.Sort(names)
		if near := config.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			err = fmt.Errorf("%w; did you mean --%s?", err, near)
		}
	}
	return UsageError(err)
}
