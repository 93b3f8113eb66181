package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/weir-lb/weir/internal/cli/startup" // first of all
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/handover"
	"github.com/weir-lb/weir/internal/keyerror"
	"github.com/weir-lb/weir/internal/privilege"
)

// Exit codes of every command. A command that needs another one returns an ExitError.
const (
	ExitFailure = 1 // it ran, and the answer is no, or something broke
	ExitUsage   = 2 // flags, arguments or a configuration that cannot be meant
)

// ExitError is an error that also says which exit code the process ends with.
type ExitError struct {
	Code int
	Err  error // nil: the command has already printed why
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// UsageError marks err as the user's: exit code 2 and a pointer to the help.
func UsageError(err error) error { return &ExitError{Code: ExitUsage, Err: err} }

// Run executes one command line and returns the exit code. The first interrupt cancels the command's context,
// which ends its Run loops and cleans up; after some time, or at a second one, the process ends whatever it does (see Ending).
func Run(hangups *Hangups, args []string, families []Family) int {
	if handover.Interim() {
		return handover.HoldInterim()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	end := &Ending{within: EndWithin, errOut: os.Stderr, exit: func(code int) {
		abandon()
		os.Exit(code)
	}}
	defer end.stop()
	end.obeySignals(ctx, stop)
	ctx, cancel := context.WithCancel(context.WithValue(ctx, processKey{}, Signals{hangups, end, privilege.ProtectKeys}))
	defer cancel()
	go hangups.handle(ctx, func() {
		cancel()
		end.begin(true)
	})

	root := NewRoot(families)
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	code := ExitFailure
	var exit *ExitError
	if errors.As(err, &exit) {
		code = exit.Code
	}
	if exit == nil || exit.Err != nil {
		for _, one := range eachOf(err) {
			fmt.Fprintf(os.Stderr, "weir: %v\n", one)
		}
	}
	reported := exit != nil && exit.Err == nil // by a child, with the hint
	bad := (*config.Error)(nil)                // a file's mistake is not in the help
	if code == ExitUsage && !reported && !errors.As(err, &bad) {
		fmt.Fprintf(os.Stderr, "Run '%s --help' for usage.\n", command.CommandPath())
	}
	return code
}

// eachOf returns the errors of several flags one by one.
func eachOf(err error) []error {
	var several keyerror.Errors
	if errors.As(err, &several) {
		return several
	}
	return []error{err}
}
