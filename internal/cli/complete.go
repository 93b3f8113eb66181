package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What a completion allows in addition to its values.
const (
	NoFiles = cobra.ShellCompDirectiveNoFileComp
	AnyFile = cobra.ShellCompDirectiveDefault
)

// completeCommand gives every flag and argument that has no completion of its own the one of the tables: known values, files, or nothing.
func completeCommand(cmd *cobra.Command, families []Family) {
	path, files, values := cmd.CommandPath(), flagFiles(), flagValues()
	arguments := map[string]cobra.CompletionFunc{"weir man": AtMost(1, directories)}
	for _, of := range families {
		if of.Values != nil {
			maps.Copy(values, of.Values())
		}
		if of.Arguments != nil {
			maps.Copy(arguments, of.Arguments())
		}
	}
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if _, own := cmd.GetFlagCompletionFunc(flag.Name); own || flag.Value.Type() == "bool" {
			return
		}
		complete := files[flag.Name]
		if some, known := values[path+" --"+flag.Name]; known {
			complete = valuesOf(flag, some)
		} else if some, known := values["--"+flag.Name]; known {
			complete = valuesOf(flag, some)
		}
		if complete == nil {
			complete = cobra.NoFileCompletions
		}
		if err := cmd.RegisterFlagCompletionFunc(flag.Name, complete); err != nil {
			panic(err) // the flag is there and has none
		}
	})
	if cmd.ValidArgsFunction == nil && !cmd.HasSubCommands() {
		if cmd.ValidArgsFunction = arguments[path]; cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
}

// valuesOf completes with the values, of a list with those that are not in it yet.
func valuesOf(flag *pflag.Flag, values []string) cobra.CompletionFunc {
	list := strings.HasSuffix(flag.Value.Type(), "Slice")
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		if !list {
			return BeginningWith(values, typed), NoFiles
		}
		before, last := "", typed
		if i := strings.LastIndexByte(typed, ','); i >= 0 {
			before, last = typed[:i+1], typed[i+1:]
		}
		var left []string
		for _, value := range BeginningWith(values, last) {
			name, _, _ := strings.Cut(value, "\t")
			if !slices.Contains(strings.Split(before, ","), name) {
				left = append(left, before+value)
			}
		}
		return left, NoFiles
	}
}

// BeginningWith are the values that begin with what is typed.
func BeginningWith(values []string, typed string) (some []string) {
	for _, value := range values {
		if strings.HasPrefix(value, typed) {
			some = append(some, value)
		}
	}
	return some
}

// FilesOf completes with files of these extensions, and directories.
func FilesOf(extensions ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return extensions, cobra.ShellCompDirectiveFilterFileExt
	}
}

// AtMost completes the first n arguments.
func AtMost(n int, complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= n {
			return nil, NoFiles
		}
		return complete(cmd, args, typed)
	}
}

// Schemes completes the beginning of a URI.
func Schemes(all ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return BeginningWith(all, typed), NoFiles | cobra.ShellCompDirectiveNoSpace
	}
}

// Configurations completes with configuration files.
func Configurations() cobra.CompletionFunc { return FilesOf("yaml", "yml", "json") }

func directories(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// Files completes with any file.
func Files(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, AnyFile
}

// flagFiles are the flags that name files, in every command that has them.
func flagFiles() map[string]cobra.CompletionFunc {
	return map[string]cobra.CompletionFunc{
		"config": Configurations(), "announce": Configurations(), "report": FilesOf("html"), "pcap": FilesOf("pcap", "pcapng"), "cf-nat": FilesOf("jar"),
		"ca": FilesOf("pem", "crt"), "credentials": Files, "psk-file": Files, "ticket-secrets": Files, "oscore": FilesOf("yaml", "yml"), "admin-token-file": Files, "token-file": Files, "stats-token-file": Files,
		"cert": FilesOf("pem", "crt"), "cert-key": FilesOf("pem", "key"), "rpk": FilesOf("pem", "key"), "trust": FilesOf("pem", "crt"), "file": Files, "output": Files,
		"pin-path": directories, "state": directories, "interface": interfaces, "admin": adminSockets,
	}
}
