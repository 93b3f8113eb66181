package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const (
	noFiles = cobra.ShellCompDirectiveNoFileComp
	anyFile = cobra.ShellCompDirectiveDefault
)

// completeCommand gives every flag and argument that has no completion of its own the one of the tables: known values, files, or nothing.
func completeCommand(cmd *cobra.Command) {
	path, files, values := cmd.CommandPath(), flagFiles(), flagValues()
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
		if cmd.ValidArgsFunction = argumentFiles()[path]; cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
	}
}

// valuesOf completes with the values, of a list with those that are not in it yet.
func valuesOf(flag *pflag.Flag, values []string) cobra.CompletionFunc {
	list := strings.HasSuffix(flag.Value.Type(), "Slice")
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		if !list {
			return beginningWith(values, typed), noFiles
		}
		before, last := "", typed
		if i := strings.LastIndexByte(typed, ','); i >= 0 {
			before, last = typed[:i+1], typed[i+1:]
		}
		var left []string
		for _, value := range beginningWith(values, last) {
			name, _, _ := strings.Cut(value, "\t")
			if !slices.Contains(strings.Split(before, ","), name) {
				left = append(left, before+value)
			}
		}
		return left, noFiles
	}
}

func beginningWith(values []string, typed string) (some []string) {
	for _, value := range values {
		if strings.HasPrefix(value, typed) {
			some = append(some, value)
		}
	}
	return some
}

// filesOf completes with files of these extensions, and directories.
func filesOf(extensions ...string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return extensions, cobra.ShellCompDirectiveFilterFileExt
	}
}

// atMost completes the first n arguments.
func atMost(n int, complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= n {
			return nil, noFiles
		}
		return complete(cmd, args, typed)
	}
}

// schemes completes the beginning of a URI.
func schemes(all ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return beginningWith(all, typed), noFiles | cobra.ShellCompDirectiveNoSpace
	}
}

func configurations() cobra.CompletionFunc { return filesOf("yaml", "yml", "json") }

func directories(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

func files(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, anyFile
}

// flagFiles are the flags that name files, in every command that has them.
func flagFiles() map[string]cobra.CompletionFunc {
	return map[string]cobra.CompletionFunc{
		"config": configurations(), "report": filesOf("html"), "output": filesOf("html"), "pcap": filesOf("pcap", "pcapng"), "cf-nat": filesOf("jar"),
		"ca": filesOf("pem", "crt"), "credentials": files, "psk-file": files, "admin-token-file": files, "token-file": files, "stats-token-file": files,
		"pin-path": directories, "state": directories, "interface": interfaces, "admin": adminSockets,
	}
}

// argumentFiles are the commands whose arguments name files or URIs. Those with -c have theirs from configFile.
func argumentFiles() map[string]cobra.CompletionFunc {
	return map[string]cobra.CompletionFunc{
		"weir bench report": filesOf("json"), "weir turn import": atMost(1, files), "weir man": atMost(1, directories), "weir lb import nfqlb": files, "weir init": atMost(1, configurations()),
		"weir coap get": atMost(1, schemes("coap://", "coaps://")), "weir coap bench": atMost(1, schemes("coap://", "coaps://")),
		"weir turn cat": completeTurnCat,
	}
}

func completeTurnCat(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return schemes("udp://", "tcp://", "unix://", "-")(cmd, args, typed)
	case 1:
		return schemes("turn:", "turns:")(cmd, args, typed)
	case 2:
		return schemes("udp://", "tcp://")(cmd, args, typed)
	}
	return nil, noFiles
}
