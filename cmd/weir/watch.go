package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// again runs show at intervals until ctx ends; on a terminal, unless plain, each time in the same place.
func again(ctx context.Context, out io.Writer, plain bool, every time.Duration, show func(context.Context) error) error {
	file, _ := out.(*os.File)
	clear := !plain && file != nil && term.IsTerminal(int(file.Fd()))
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if clear {
			fmt.Fprint(out, "\x1b[H\x1b[2J")
		}
		err := show(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
