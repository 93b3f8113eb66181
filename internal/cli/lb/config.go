package lb

import (
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/status"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/control/tree"
)

func newLBApplyCommand() *cobra.Command {
	var flags changeFlags
	var file cli.ConfigFile
	var replace bool
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Make the changes of a file, all or none",
		Long: `Make the changes of a file in YAML or JSON, all or none.

The file is a part of a configuration: services, backends and rules in it are found by name, get the keys that it has, and keep their
others. Or it is a list of changes with op set, merge, add or remove:

  changes:
  - {op: merge, path: /services/echo/backends/a, value: {weight: 5}}
  - {op: remove, path: /services/echo/backends/b}`,
		Example: `  weir lb apply canary.yaml --dry-run
  weir lb apply -c canary.yaml --write
  weir lb config | sed 's/weight: 5/weight: 50/' | weir lb apply - --replace`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			changes, err := readChanges(cmd, file.Path, replace)
			if err != nil {
				return cli.UsageError(err)
			}
			return flags.make(cmd, changes)
		},
	}
	file.Add(cmd, " or a part of one, or a list of changes; - for the standard input")
	cmd.Flags().StringVarP(&file.Path, "file", "f", "", "as -c, for hands that are used to it")
	_ = cmd.Flags().MarkHidden("file")
	cmd.Args = file.Required
	cmd.Flags().BoolVar(&replace, "replace", false, "the file is the whole configuration: what it lacks is removed")
	flags.add(cmd)
	return cmd
}

func readChanges(cmd *cobra.Command, file string, replace bool) ([]tree.Change, error) {
	var text []byte
	var err error
	switch file {
	case "-":
		text, err = io.ReadAll(io.LimitReader(cmd.InOrStdin(), config.MaxJSONBytes+1))
	default:
		text, err = config.Once(file)
	}
	if err != nil {
		return nil, err
	}
	if slices.Contains(config.Keys(text), "changes") {
		if replace {
			return nil, errors.New("--replace is of a whole configuration; the file is a list of changes")
		}
		return tree.Batch(specShape(), file, text)
	}
	value, err := tree.Of(specShape(), file, text)
	if err != nil {
		return nil, err
	}
	op := "merge"
	if replace {
		op = "set"
	}
	return []tree.Change{{Op: op, Path: "/", Value: value}}, nil
}

func newLBConfigCommand() *cobra.Command {
	var flags cli.ClientFlags
	var watch bool
	cmd := &cobra.Command{
		Use:   "config [PATH]",
		Short: "Show the configuration in force, or an object of it, or follow its changes",
		Long: `Show the configuration in force, with its run-time changes, as YAML; with a PATH an object of it. With secrets such as hash_key.
The number and etag of the configuration, for --if of other commands, are on the first line and in the JSON.

With --watch: a line for each configuration that comes into force, with who made it and what it changes, until interrupted.`,
		Example: `  weir lb config
  weir lb config /services/echo/backends/a --json | jq .value.weight
  weir lb config --watch`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			running, err := flags.Client()
			if err != nil {
				return err
			}
			if watch {
				return running.WatchConfig(cmd.Context(), 0, func(event *v1.ConfigEvent) bool {
					if flags.AsJSON {
						err = cli.PrintLine(cmd.OutOrStdout(), event)
					} else {
						err = status.ConfigEvent(cmd.OutOrStdout(), event)
					}
					return err == nil
				})
			}
			path := "/"
			if len(args) > 0 {
				path = args[0]
			}
			var value json.RawMessage
			found, err := running.Config(cmd.Context(), path, &value)
			if err != nil {
				return err
			}
			if flags.AsJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), found)
			}
			names, err := tree.Split(found.Path)
			if err != nil {
				return err
			}
			at := specShape().At(names)
			object, err := tree.Read(at, value)
			if err != nil {
				return err
			}
			return status.Configuration(cmd.OutOrStdout(), found, tree.YAML(at, object))
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "again and again: at each change, until interrupted")
	flags.Add(cmd, cli.LBPart())
	cmd.ValidArgsFunction = cli.AtMost(1, configPaths(&flags))
	return cmd
}

// configPaths completes the paths of services and backends.
func configPaths(f *cli.ClientFlags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		found, help := cli.Query(cmd, f, queryStatus)
		if found == nil {
			return help, cli.NoFiles
		}
		var paths []string
		for i := range found.Services {
			s := &found.Services[i]
			paths = append(paths, tree.Join("services", s.Name))
			for j := range s.Backends {
				paths = append(paths, tree.Join("services", s.Name, "backends", s.Backends[j].Name))
			}
		}
		return cli.BeginningWith(paths, typed), cli.NoFiles
	}
}

func newLBDiffCommand() *cobra.Command {
	var flags cli.ClientFlags
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Show how the configuration in force differs from its file",
		Long:  "Show how the configuration in force differs from its file: the run-time changes, which a restart would lose.",
		Example: `  weir lb diff
  weir lb diff --json | jq -r '.differences[].path'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			running, err := flags.Client()
			if err != nil {
				return err
			}
			found, err := running.DiffConfig(cmd.Context())
			if err != nil {
				return err
			}
			if flags.AsJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), found)
			}
			return status.ConfigDiff(cmd.OutOrStdout(), found)
		},
	}
	flags.Add(cmd, cli.LBPart())
	return cmd
}
