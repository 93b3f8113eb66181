// Command weir steers and measures layer-4 traffic.
//
// This folder holds one file per command: flags, wiring and signals, no logic.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/privilege"
)

// Exit codes of every command. A command that needs another one returns an exitError.
const (
	exitFailure = 1 // it ran, and the answer is no, or something broke
	exitUsage   = 2 // flags, arguments or a configuration that cannot be meant
)

// exitError is an error that also says which exit code the process ends with.
type exitError struct {
	code int
	err  error // nil: whoever failed has said why
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError marks err as the user's: exit code 2 and a pointer to the help.
func usageError(err error) error { return &exitError{code: exitUsage, err: err} }

func main() {
	hangups := catchHangups()
	os.Exit(run(hangups, os.Args[1:]))
}

// run executes one command line and returns the exit code. The first interrupt cancels the command's context,
// which ends its Run loops and cleans up; after endWithin, or at a second one, the process ends whatever it does.
func run(hangups *hangups, args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	end := &ending{within: endWithin, errOut: os.Stderr, exit: os.Exit}
	defer end.stop()
	context.AfterFunc(ctx, func() {
		stop()
		end.begin()
	})
	ctx, cancel := context.WithCancel(context.WithValue(ctx, processKey{}, processSignals{hangups, end, privilege.ProtectKeys}))
	defer cancel()
	go hangups.handle(ctx, func() {
		cancel()
		end.begin()
	})

	root := newRootCommand()
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	code := exitFailure
	var exit *exitError
	if errors.As(err, &exit) {
		code = exit.code
	}
	if exit == nil || exit.err != nil {
		fmt.Fprintf(os.Stderr, "weir: %v\n", err)
	}
	said := exit != nil && exit.err == nil // by a child, with the hint
	bad := (*config.Error)(nil)            // a file's mistake is not in the help
	if code == exitUsage && !said && !errors.As(err, &bad) {
		fmt.Fprintf(os.Stderr, "Run '%s --help' for usage.\n", command.CommandPath())
	}
	return code
}
