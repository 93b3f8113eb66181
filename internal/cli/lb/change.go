package lb

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/status"
	"github.com/weir-lb/weir/internal/control/tree"
	"github.com/weir-lb/weir/internal/steering/lb"
)

func specShape() tree.Shape { return tree.ShapeOf[lb.Spec]() }

// kind is a kind of object that set, add and remove change.
type kind struct{ name, list, about string }

// kinds: list is the key of the service that has such objects.
func kinds() []kind {
	return []kind{
		{"service", "", "SERVICE: what clients address"},
		{"backend", "backends", "SERVICE/BACKEND: one server"},
		{"weight", "backends", "SERVICE/BACKEND NUMBER: a backend's share of new flows"},
		{"vip", "vips", "SERVICE/PROTOCOL:ADDRESS:PORT: one address"},
		{"rule", "flows", "SERVICE/RULE: a flow rule of mode mark"},
		{"option", "", "KEY=VALUE: an option of the whole configuration"},
	}
}

func kindNamed(name string) (kind, error) {
	var names []string
	for _, k := range kinds() {
		if k.name == name {
			return k, nil
		}
		names = append(names, k.name)
	}
	return kind{}, cli.UsageError(fmt.Errorf("no kind %q; write %s", name, strings.Join(names, ", ")))
}

// path returns the path of an object of the kind.
func (k kind) path(name string) ([]string, error) {
	service, object, both := strings.Cut(name, "/")
	switch {
	case k.name == "service" && !both && name != "":
		return []string{"services", name}, nil
	case k.list != "" && service != "" && object != "":
		return []string{"services", service, k.list, object}, nil
	}
	return nil, cli.UsageError(fmt.Errorf("%s %q: name a %s", k.name, name, k.about))
}

// changeFlags are the flags of commands that change the configuration.
type changeFlags struct {
	cli.ClientFlags
	dryRun, write bool
	condition     string
}

func (f *changeFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "show what would change and what it is compiled to, and change nothing")
	cmd.Flags().BoolVar(&f.write, "write", false, "write the change to the configuration file too, with its comments")
	cmd.Flags().StringVar(&f.condition, "if", "", "only if this etag is in force (weir lb config shows it; its number may be given instead); else exit code 1")
	f.Add(cmd, cli.LBPart())
}

// make sends changes and prints the answer.
func (f *changeFlags) make(cmd *cobra.Command, changes []tree.Change) error {
	running, err := f.Client()
	if err != nil {
		return err
	}
	request := v1.ConfigRequest{If: f.condition, DryRun: f.dryRun, Write: f.write, Changes: []v1.ConfigChange{}}
	for _, c := range changes {
		change := v1.ConfigChange{Op: c.Op, Path: c.Path}
		if c.Value != nil {
			if change.Value, err = json.Marshal(c.Value); err != nil {
				return err
			}
		}
		request.Changes = append(request.Changes, change)
	}
	answer, err := running.Change(cmd.Context(), request)
	if err != nil {
		return err
	}
	return f.print(cmd, answer, status.ConfigAnswer)
}

func (f *changeFlags) print(cmd *cobra.Command, answer *v1.ConfigAnswer, text func(io.Writer, *v1.ConfigAnswer) error) error {
	if f.AsJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), answer)
	}
	return text(cmd.OutOrStdout(), answer)
}

// newLBChangeCommands returns set, add and remove.
func newLBChangeCommands() []*cobra.Command {
	var about strings.Builder
	for _, k := range kinds() {
		fmt.Fprintf(&about, "  %-8s %s\n", k.name, k.about)
	}
	after := `

A KEY is one of the configuration file (docs/options.md), with dots for keys of a section: timeouts.udp=30s. The value null takes a key out, so that
its default counts; a list has commas: nodes=1,2. Kinds of objects:

` + about.String() + `
The change is in force when the command returns, and flows stay on their backends. It is checked as the file is: what is invalid is
refused with the path and a remedy. Doing it twice has no further effect. Without --write (here or of weir lb run) the file does not
have it: weir lb diff, save, revert.`
	var commands []*cobra.Command
	for _, c := range []struct{ verb, op, use, short, example string }{
		{"set", "merge", "set KIND NAME [KEY=VALUE...]", "Change keys of a service, VIP, backend or rule, or make it", `  weir lb set weight echo/a 5
  weir lb set backend echo/c address=192.0.2.13 port=5784 --dry-run
  weir lb set service echo timeouts.udp=30s new_flow_rate=null
  weir lb set option limits.flows=500000 --write`},
		{"add", "add", "add KIND NAME [KEY=VALUE...]", "Add a service, VIP, backend or rule that is not there", `  weir lb add backend echo/c address=192.0.2.13 port=5784
  weir lb add vip echo/udp:192.0.2.1:5784
  weir lb add service dns vips=udp:192.0.2.1:53,tcp:192.0.2.1:53 mode=l2dsr
  weir lb add rule edge/dns priority=10 protocols=udp destination_ports=53`},
		{"remove", "remove", "remove KIND NAME...", "Remove services, VIPs, backends or rules", `  weir lb remove backend echo/a echo/b
  weir lb remove vip echo/udp:192.0.2.1:5784 --if 7-1a2b3c4d
  weir lb remove weight echo/a        # back to the default
  weir lb remove option limits.flows`},
	} {
		var flags changeFlags
		cmd := &cobra.Command{Use: c.use, Short: c.short, Long: c.short + "." + after, Example: c.example}
		cmd.Args = func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return cli.UsageError(fmt.Errorf("name a KIND and a NAME: weir lb %s", c.use))
			}
			return nil
		}
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			changes, err := changesOf(c.op, args)
			if err != nil {
				return err
			}
			return flags.make(cmd, changes)
		}
		flags.add(cmd)
		cmd.ValidArgsFunction = completeChange(&flags.ClientFlags, c.op)
		commands = append(commands, cmd)
	}
	return commands
}

// changesOf returns what the words of a command line change.
func changesOf(op string, args []string) ([]tree.Change, error) {
	k, err := kindNamed(args[0])
	if err != nil {
		return nil, err
	}
	switch {
	case k.name == "option" && op == "remove":
		return removals(args[1:], func(name string) ([]string, error) { return strings.Split(name, "."), nil })
	case op == "remove":
		return removals(args[1:], func(name string) ([]string, error) {
			path, err := k.path(name)
			if k.name == "weight" {
				path = append(path, "weight")
			}
			return path, err
		})
	case k.name == "option":
		value, err := keysOf(specShape(), args[1:])
		return []tree.Change{{Op: "merge", Path: "/", Value: value}}, err
	}
	path, err := k.path(args[1])
	if err != nil {
		return nil, err
	}
	words := args[2:]
	if k.name == "weight" {
		if len(words) != 1 || op == "add" {
			return nil, cli.UsageError(errors.New("write the weight: weir lb set weight SERVICE/BACKEND NUMBER"))
		}
		words = []string{"weight=" + words[0]}
	}
	value, err := keysOf(specShape().At(path), words)
	return []tree.Change{{Op: op, Path: tree.Join(path...), Value: value}}, err
}

func removals(names []string, path func(name string) ([]string, error)) (all []tree.Change, err error) {
	for _, name := range names {
		at, err := path(name)
		if err != nil {
			return nil, err
		}
		all = append(all, tree.Change{Op: "remove", Path: tree.Join(at...)})
	}
	return all, nil
}

// keysOf returns the object that words such as timeouts.udp=30s mean.
func keysOf(s tree.Shape, words []string) (map[string]any, error) {
	object := map[string]any{}
	for _, word := range words {
		key, text, ok := strings.Cut(word, "=")
		if !ok || key == "" || text == "" {
			return nil, cli.UsageError(fmt.Errorf("%q: write KEY=VALUE, such as weight=5; null takes a key out", word))
		}
		keys := strings.Split(key, ".")
		value, err := tree.Word(s.At(keys), text)
		if err != nil {
			return nil, cli.UsageError(fmt.Errorf("%s: %w", word, err))
		}
		into := object
		for _, section := range keys[:len(keys)-1] {
			next, ok := into[section].(map[string]any)
			if !ok {
				next = map[string]any{}
				into[section] = next
			}
			into = next
		}
		into[keys[len(keys)-1]] = value
	}
	return object, nil
}

// completeChange completes kinds, names of objects that there are, and keys.
func completeChange(f *cli.ClientFlags, op string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			var names []string
			for _, k := range kinds() {
				if op != "add" || k.list != "backends" || k.name == "backend" {
					names = append(names, k.name+"\t"+k.about)
				}
			}
			return cli.BeginningWith(names, typed), cli.NoFiles
		}
		k, err := kindNamed(args[0])
		switch {
		case err != nil:
			return nil, cli.NoFiles
		case k.name == "option":
			return keyNames(specShape(), op, typed)
		case len(args) == 1 || op == "remove":
			return completeObjects(cmd, f, k, typed)
		}
		path, err := k.path(args[1])
		if err != nil || k.name == "weight" {
			return nil, cli.NoFiles
		}
		return keyNames(specShape().At(path), op, typed)
	}
}

func keyNames(s tree.Shape, op, typed string) ([]string, cobra.ShellCompDirective) {
	var names []string
	for _, key := range s.Keys() {
		of, _ := s.Key(key)
		switch {
		case key == "name":
		case of.Mapping():
			names = append(names, key+".")
		case op == "remove":
			names = append(names, key)
		default:
			names = append(names, key+"=")
		}
	}
	return cli.BeginningWith(names, typed), cli.NoFiles | cobra.ShellCompDirectiveNoSpace
}

// completeObjects completes the names of objects of a kind.
func completeObjects(cmd *cobra.Command, f *cli.ClientFlags, k kind, typed string) ([]string, cobra.ShellCompDirective) {
	if k.list == "" || k.list == "backends" {
		names, directive := serviceNames(f, k.list != "")(cmd, nil, typed)
		if k.list != "" {
			names = slices.DeleteFunc(names, func(name string) bool {
				value, _, _ := strings.Cut(name, "\t")
				return !strings.Contains(value, "/") && !strings.HasPrefix(value, "_")
			})
		}
		return names, directive
	}
	found, help := cli.Query(cmd, f, queryStatus)
	if found == nil {
		return help, cli.NoFiles
	}
	var names []string
	for i := range found.Services {
		s := &found.Services[i]
		for _, vip := range s.VIPs {
			if k.name == "vip" {
				names = append(names, s.Name+"/"+strings.Replace(vip, " ", ":", 1))
			}
		}
		for _, rule := range s.Flows {
			if k.name == "rule" {
				names = append(names, s.Name+"/"+rule.Name)
			}
		}
	}
	return cli.BeginningWith(names, typed), cli.NoFiles
}

// newLBKeepCommands returns save and revert.
func newLBKeepCommands() []*cobra.Command {
	var commands []*cobra.Command
	for _, c := range []struct {
		verb, short, long string
		do                func(*client.Client, *cobra.Command, string) (*v1.ConfigAnswer, error)
		text              func(io.Writer, *v1.ConfigAnswer) error
	}{
		{"save", "Write the run-time changes to the configuration file", "Comments and layout stay; only what has changed is written. Refused if the file has a change that is not in force.", func(c *client.Client, cmd *cobra.Command, condition string) (*v1.ConfigAnswer, error) {
			return c.SaveConfig(cmd.Context(), condition)
		}, status.ConfigSaved},
		{"revert", "End the run-time changes: the configuration file is in force", "weir lb diff shows them before.", func(c *client.Client, cmd *cobra.Command, condition string) (*v1.ConfigAnswer, error) {
			return c.RevertConfig(cmd.Context(), condition)
		}, status.ConfigReverted},
	} {
		var flags changeFlags
		cmd := &cobra.Command{
			Use: c.verb, Short: c.short, Long: c.short + ". " + c.long,
			Example: fmt.Sprintf("  weir lb %[1]s\n  weir lb %[1]s --if 7-1a2b3c4d --json", c.verb),
			Args:    cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				running, err := flags.Client()
				if err != nil {
					return err
				}
				answer, err := c.do(running, cmd, flags.condition)
				if err != nil {
					return err
				}
				return flags.print(cmd, answer, c.text)
			},
		}
		cmd.Flags().StringVar(&flags.condition, "if", "", "only if this etag is in force (weir lb config shows it; its number may be given instead); else exit code 1")
		flags.Add(cmd, cli.LBPart())
		commands = append(commands, cmd)
	}
	return commands
}
