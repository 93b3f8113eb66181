package cli

import (
	"context"
	"net"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/client"
)

// liveTimeout is how long a shell waits for names, because its user waits, too.
const liveTimeout = time.Second

// Query sends a request for a completion; if no process answers, the shell shows that.
func Query[T any](cmd *cobra.Command, f *ClientFlags, request func(context.Context, *client.Client) (*T, error)) (answer *T, help []string) {
	running, err := f.Client()
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

// CompleteFlag sets the completion of a flag that names what runs.
func CompleteFlag(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // there is no such flag
	}
}

// interfaces completes the network interfaces of this namespace.
func interfaces(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	all, err := net.Interfaces()
	if err != nil {
		return cobra.AppendActiveHelp(nil, err.Error()), NoFiles
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
		return nil, NoFiles
	}
	var running []string
	for _, path := range paths {
		if answers(path) {
			running = append(running, "unix:"+path)
		}
	}
	return BeginningWith(running, typed), NoFiles
}

// answers reports whether a process listens at a Unix socket. One that was killed leaves the file behind.
func answers(path string) bool {
	connection, err := net.DialTimeout("unix", path, liveTimeout/20)
	if err != nil {
		return false
	}
	return connection.Close() == nil
}
