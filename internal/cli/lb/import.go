package lb

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/control/nfqlb"
	"github.com/weir-lb/weir/internal/readfile"
)

func newLBImportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "import",
		Short:   "Write a configuration from what another balancer prints",
		Example: "  nfqlb show | weir lb import nfqlb > weir.yaml",
		Args:    cli.NoSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLBImportNFQLBCommand())
	return cmd
}

func newLBImportNFQLBCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "nfqlb [FILE...]",
		Short: "Write a configuration from the output of nfqlb show and nfqlb flow-list",
		Long: `Read what 'nfqlb show' and 'nfqlb flow-list' printed, from files or from standard input, and write a configuration that gives
the same marks to the same packets. One file may hold the output of several commands, one after another.

Each shared memory object becomes a service with its flows, and its active marks become backends with their index. An object
with an own mark becomes the tier. Without the output of flow-list, one object is expected, and all packets are its.

A line that is not known is an error that names file and line. The written configuration is checked as by 'weir check', and
its table is compared with the entries that nfqlb printed: a difference is a warning.
Exit codes: 0 written (there may be warnings), 2 the input is wrong.`,
		Example: `  nfqlb show --shm=tshm | weir lb import nfqlb > weir.yaml
  { nfqlb show --shm=tshm-a; nfqlb show --shm=tshm-b; nfqlb flow-list; } | weir lb import nfqlb > weir.yaml
  weir lb import nfqlb show.txt flows.json > weir.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var state nfqlb.State
			if len(args) == 0 {
				text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), config.MaxBytes+1))
				if err == nil {
					err = state.Read("stdin", text)
				}
				if err != nil {
					return cli.UsageError(err)
				}
			}
			for _, name := range args {
				text, err := readfile.Once(name, config.MaxBytes)
				if err == nil {
					err = state.Read(name, text)
				}
				if err != nil {
					return cli.UsageError(err)
				}
			}
			text, warnings, err := state.Configuration()
			if err != nil {
				return cli.UsageError(err)
			}
			for _, warning := range warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", warning)
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}
