package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// liveTimeout is how long a shell waits for names: whoever typed the key looks at it.
const liveTimeout = time.Second

// ask sends a request for a completion; where nobody answers, the shell says so.
func ask[T any](cmd *cobra.Command, f *clientFlags, request func(context.Context, *client.Client) (*T, error)) (answer *T, help []string) {
	running, err := f.client()
	if err == nil {
		ctx, cancel := context.WithTimeout(cmd.Context(), liveTimeout)
		defer cancel()
		answer, err = request(ctx, running)
	}
	if err != nil {
		return nil, cobra.AppendActiveHelp(nil, err.Error())
	}
	return answer, nil
}

func askStatus(ctx context.Context, c *client.Client) (*v1.LBStatus, error) { return c.LBStatus(ctx) }

func askUsers(ctx context.Context, c *client.Client) (*v1.TurnUserList, error) {
	return c.Users(ctx, client.UserQuery{Limit: 1000})
}

// services completes the names of a running balancer's services; with backends also SERVICE/BACKEND.
func (f *clientFlags) services(backends bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		status, help := ask(cmd, f, askStatus)
		if status == nil {
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
	status, help := ask(cmd, f, askStatus)
	if status == nil {
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
func (f *clientFlags) users(column func(*v1.TurnUser) string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		list, help := ask(cmd, f, askUsers)
		if list == nil {
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
