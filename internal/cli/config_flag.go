package cli

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
)

// ConfigFile is the configuration of a command that reads one: -c FILE, or FILE as its argument, which means the same.
type ConfigFile struct{ Path string }

// Add adds -c; about says more of the file.
func (f *ConfigFile) Add(cmd *cobra.Command, about string) {
	cmd.Flags().StringVarP(&f.Path, "config", "c", "", "configuration file"+about+"; the same as the argument FILE")
	cmd.ValidArgsFunction = AtMost(1, Configurations())
}

// Args reads the argument, after the flags: a cobra.PositionalArgs.
func (f *ConfigFile) Args(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return UsageError(fmt.Errorf("%d files given; name exactly one", len(args)))
	}
	if len(args) == 0 {
		return nil
	}
	if f.Path != "" && filepath.Clean(f.Path) != filepath.Clean(args[0]) {
		return UsageError(fmt.Errorf("two configuration files, -c %s and %s; name one", f.Path, args[0]))
	}
	f.Path = args[0]
	return nil
}

// Required is args of a command that does nothing without a file.
func (f *ConfigFile) Required(cmd *cobra.Command, args []string) error {
	if err := f.Args(cmd, args); err != nil {
		return err
	}
	if f.Path == "" {
		return UsageError(fmt.Errorf("no configuration; name it: %s FILE", cmd.CommandPath()))
	}
	return nil
}
