package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/turn/gateway"
)

// liveTimeout is how long a shell waits for names: whoever typed the key looks at it.
const liveTimeout = time.Second

// ask has the running part answer for a completion; where none does, the shell says so.
func (f *clientFlags) ask(cmd *cobra.Command, path string, query url.Values, answer any) (help []string, ok bool) {
	client, err := f.client()
	if err == nil {
		ctx, cancel := context.WithTimeout(cmd.Context(), liveTimeout)
		defer cancel()
		err = client.Get(ctx, path, query, answer)
	}
	if err != nil {
		return cobra.AppendActiveHelp(nil, err.Error()), false
	}
	return nil, true
}

// services completes the names of a running balancer's services; with backends also SERVICE/BACKEND.
func (f *clientFlags) services(backends bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		var status lbStatus
		if help, ok := f.ask(cmd, "/status", nil, &status); !ok {
			return help, noFiles
		}
		var names []string
		for i := range status.Services {
			s := &status.Services[i]
			names = append(names, fmt.Sprintf("%s\t%s, %s backends up", s.Name, s.State, backendsUp(s)))
			for j := range s.Backends {
				if b := &s.Backends[j]; backends {
					names = append(names, fmt.Sprintf("%s/%s\t%v, %.0f %% of new flows", s.Name, b.Name, b.State, 100*b.Share))
				}
			}
		}
		return beginningWith(names, typed), noFiles
	}
}

// backends completes the names of backends alone.
func (f *clientFlags) backends(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	var status lbStatus
	if help, ok := f.ask(cmd, "/status", nil, &status); !ok {
		return help, noFiles
	}
	wanted, names := cmd.Flag("service").Value.String(), []string(nil)
	for i := range status.Services {
		for j := range status.Services[i].Backends {
			if wanted == "" || wanted == status.Services[i].Name {
				names = append(names, status.Services[i].Backends[j].Name)
			}
		}
	}
	slices.Sort(names)
	return beginningWith(slices.Compact(names), typed), noFiles
}

// users completes a column of a gateway's allocations.
func (f *clientFlags) users(column func(*gateway.User) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		var list turnUserList
		if help, ok := f.ask(cmd, "/users", url.Values{"limit": {"1000"}}, &list); !ok {
			return help, noFiles
		}
		var names []string
		for i := range list.Users {
			names = append(names, column(&list.Users[i]))
		}
		slices.Sort(names)
		return beginningWith(slices.Compact(names), typed), noFiles
	}
}

// live sets the completion of a flag that names what runs.
func live(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // there is no such flag
	}
}

// interfaces completes the network interfaces of this namespace.
func interfaces(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	all, err := net.Interfaces()
	if err != nil {
		return cobra.AppendActiveHelp(nil, err.Error()), noFiles
	}
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	return valuesOf(cmd.Flag("interface"), names)(cmd, args, typed)
}

// adminSockets completes the Unix sockets of this user's running parts.
func adminSockets(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	paths, err := filepath.Glob(filepath.Join(controlDirectory(), "*.sock"))
	if err != nil {
		return nil, noFiles
	}
	for i := range paths {
		paths[i] = "unix:" + paths[i]
	}
	return beginningWith(paths, typed), noFiles
}

// labNames completes the first argument with the topologies that exist.
func labNames(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, noFiles
	}
	return beginningWith(netlab.Names(), typed), noFiles
}

// keptLabs completes the first argument with the labs that are up.
func keptLabs(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	names, err := netlab.Kept()
	switch {
	case err != nil:
		return cobra.AppendActiveHelp(nil, err.Error()), noFiles
	case len(names) == 0 && len(args) == 0:
		return cobra.AppendActiveHelp(nil, "no lab is up; weir lab up LAB builds one"), noFiles
	case len(args) > 0:
		return nil, noFiles
	}
	return beginningWith(names, typed), noFiles
}

// labNamespaces completes a lab that is up, one of its namespaces, and a command line.
func labNamespaces(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return keptLabs(cmd, args, typed)
	case 1:
		topology, err := netlab.Named(args[0])
		if err != nil {
			return cobra.AppendActiveHelp(nil, err.Error()), noFiles
		}
		return beginningWith(namespaceNames(topology), typed), noFiles
	}
	return nil, anyFile
}
