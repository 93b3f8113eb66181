package status

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/client"
	"github.com/weir-lb/weir/internal/cli"
)

// View is the flags of a command that shows what a running part answers.
type View struct {
	cli.ClientFlags
	watch bool
	every time.Duration
}

// Look is one answer: its JSON, and how it is written for people.
type Look struct {
	JSON any
	Text func(w io.Writer) error
}

// AddWatch adds --watch and --every. about says what --watch does.
func (v *View) AddWatch(cmd *cobra.Command, about string) {
	cmd.Flags().BoolVarP(&v.watch, "watch", "w", false, about)
	cli.DurationVar(cmd.Flags(), &v.every, "every", time.Second, "how often with --watch")
}

// Watching reports whether --watch is given.
func (v *View) Watching() bool { return v.watch }

// check says which of the flags cannot be meant.
func (v *View) check() error {
	if v.every != 0 && v.every < 100*time.Millisecond {
		return cli.UsageError(fmt.Errorf("--every %s: write 100ms or more", v.every))
	}
	return nil
}

// Show prints what look finds at the part that the flags name: as JSON or text, and with --watch again and again until the command
// is interrupted, JSON then on one line each time.
func (v *View) Show(cmd *cobra.Command, look func(ctx context.Context, running *client.Client) (Look, error)) error {
	running, err := v.Client()
	if err != nil {
		return err
	}
	if err := v.check(); err != nil {
		return err
	}
	out, printJSON := cmd.OutOrStdout(), cli.PrintJSON
	once := func(ctx context.Context) error {
		answer, err := look(ctx, running)
		switch {
		case err != nil:
			return err
		case v.AsJSON:
			return printJSON(out, answer.JSON)
		}
		return answer.Text(out)
	}
	if !v.watch {
		return once(cmd.Context())
	}
	printJSON = cli.PrintLine
	return cli.Watch(cmd.Context(), &out, v.AsJSON, v.every, once)
}
