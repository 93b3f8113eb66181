package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
)

// configFile is the configuration of a command that reads one: -c FILE, or FILE as its argument, which means the same.
type configFile struct{ path string }

// add adds -c; about says more of the file.
func (f *configFile) add(cmd *cobra.Command, about string) {
	cmd.Flags().StringVarP(&f.path, "config", "c", "", "configuration file"+about+"; the same as the argument FILE")
	cmd.ValidArgsFunction = atMost(1, configurations())
}

// args reads the argument, after the flags: a cobra.PositionalArgs.
func (f *configFile) args(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usageError(fmt.Errorf("%d files given; name exactly one", len(args)))
	}
	if len(args) == 0 {
		return nil
	}
	if f.path != "" && filepath.Clean(f.path) != filepath.Clean(args[0]) {
		return usageError(fmt.Errorf("two configuration files, -c %s and %s; name one", f.path, args[0]))
	}
	f.path = args[0]
	return nil
}

// required is args of a command that does nothing without a file.
func (f *configFile) required(cmd *cobra.Command, args []string) error {
	if err := f.args(cmd, args); err != nil {
		return err
	}
	if f.path == "" {
		return usageError(fmt.Errorf("no configuration; name it: %s FILE", cmd.CommandPath()))
	}
	return nil
}
