package cli

import (
	"bytes"
	"context"
	"io"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/terminal"
)

// QuietUsage is what -q means everywhere.
const QuietUsage = "show no progress and no statistics while it runs"

// screenText is text that is as wide as the terminal it is for.
type screenText struct {
	bytes.Buffer
	live *terminal.Live
}

func (s *screenText) Width() int { return s.live.Width() }

// Watch runs show, which prints to *out, at intervals until ctx ends; on a terminal, unless plain, each time in the same
// place.
func Watch(ctx context.Context, out *io.Writer, plain bool, every time.Duration, show func(context.Context) error) error {
	live := terminal.NewLive(*out)
	defer live.Keep()
	text := screenText{live: live}
	*out = &text
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		text.Reset()
		err := show(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if live.IsTerminal() && !plain {
			live.Show(strings.Split(strings.TrimRight(text.String(), "\n"), "\n")...)
		} else if _, err := live.Write(text.Bytes()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// LogEvery is the interval of statistics in the log if there is no terminal.
const LogEvery = 10 * time.Second
