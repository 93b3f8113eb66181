package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// OldFlag keeps a former spelling: it sets the flag of today and says so, and is in no help.
func OldFlag(cmd *cobra.Command, old, shorthand, now string) {
	flags := cmd.Flags()
	target := flags.Lookup(now)
	flag := flags.VarPF(formerly{flags, target}, old, shorthand, target.Usage)
	flag.NoOptDefVal = target.NoOptDefVal
	flag.Deprecated = "write --" + now
	flag.Hidden = true
}

// OldShorthand keeps a letter that means something else in other commands.
func OldShorthand(cmd *cobra.Command, letter, name string) {
	flag := cmd.Flags().Lookup(name)
	if flag.Shorthand != letter {
		panic(fmt.Sprintf("--%s of %s is not -%s", name, cmd.CommandPath(), letter))
	}
	flag.ShorthandDeprecated = "write --" + name
}

// formerly passes a value on to the flag of today.
type formerly struct {
	flags *pflag.FlagSet
	now   *pflag.Flag
}

func (f formerly) String() string { return "" }

func (f formerly) Type() string {
	if f.now == nil { // pflag queries a zero value for the default
		return ""
	}
	return f.now.Value.Type()
}

func (f formerly) Set(text string) error {
	if _, err := strconv.ParseFloat(text, 64); err == nil && f.Type() == "duration" {
		text += "s" // --seconds
	}
	return f.flags.Set(f.now.Name, text)
}
