package nat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/datapath/udpnat"
	"github.com/weir-lb/weir/internal/terminal"
)

const natPrompt = "weir nat> "

// ctrlC is what a terminal in raw mode sends instead of an interrupt.
const ctrlC = 3

// attach takes standard input: a terminal gets a prompt, anything else is read line by line. The returned function
// serves it until it ends; it may stay blocked in a read for ever.
func (s *natScreen) attach(in *os.File, console *udpnat.Console) (func(ctx context.Context, exit func()), error) {
	answers := s.out
	if s.json {
		answers = s.errOut
	}
	file, ok := answers.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(file.Fd())) {
		return func(ctx context.Context, _ func()) {
			if err := console.Serve(ctx, in, answers); err != nil && ctx.Err() == nil {
				fmt.Fprintf(s.errOut, "console: %v; the program goes on\n", err)
			}
		}, nil
	}
	state, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	s.console = file
	s.restore = func() { _ = term.Restore(int(in.Fd()), state) }
	keys := &keyReader{in: in}
	t := s.open(keys, console)
	s.terminal.Store(t)
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	go func() {
		for range resized {
			s.resize()
		}
	}()
	return func(ctx context.Context, exit func()) {
		defer func() { signal.Stop(resized); close(resized) }()
		s.serveTerminal(ctx, t, keys, console, exit)
	}, nil
}

// open makes the editor of a line with its prompt, on the console's terminal.
func (s *natScreen) open(keys *keyReader, console *udpnat.Console) *term.Terminal {
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{keys, s.console}, natPrompt)
	width, height := s.size()
	_ = t.SetSize(width, height)
	t.AutoCompleteCallback = completion(console)
	return t
}

// serveTerminal executes the lines that are typed, until the terminal ends or ctx does. Ctrl-C calls exit.
func (s *natScreen) serveTerminal(ctx context.Context, t *term.Terminal, keys *keyReader, console *udpnat.Console, exit func()) {
	for ctx.Err() == nil {
		line, err := t.ReadLine()
		switch {
		case keys.interrupted:
			exit()
			return
		case errors.Is(err, io.EOF) && !keys.ended: // Ctrl-D, which the terminal would see again and again
			t.SetPrompt("")
			fmt.Fprintln(t, "type exit, or press Ctrl-C, to end")
			fresh := s.open(keys, console)
			fresh.History = t.History
			if !s.terminal.CompareAndSwap(t, fresh) {
				return
			}
			t = fresh
			continue
		case err != nil && !errors.Is(err, term.ErrPasteIndicator):
			return // the terminal is gone; the program continues
		}
		answer, err := console.Execute(ctx, line)
		if err != nil {
			answer = "error: " + err.Error()
		}
		fmt.Fprintln(t, answer)
	}
}

// size returns the size of the console's terminal, or 80×24 if that is unknown.
func (s *natScreen) size() (width, height int) {
	width, height, err := term.GetSize(int(s.console.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}

// prompt shows the rates where there is room for them and for a command.
func (s *natScreen) prompt(t *term.Terminal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	width, height := s.size()
	prompt := natPrompt
	if room := width - len("[] ") - len(natPrompt) - len("drain 192.0.2.10:5684"); s.rates != "" && room >= 16 {
		prompt = "[" + terminal.Cut(s.rates, room) + "] " + natPrompt
	}
	// A terminal that has become narrower than the prompt has wrapped it, as the prompt's own package assumes, too.
	if rows := (utf8.RuneCountInString(s.shown) - 1) / width; rows > 0 {
		fmt.Fprintf(s.console, "\r\x1b[%dA\x1b[J", rows)
	}
	s.shown = prompt
	t.SetPrompt(prompt)
	_ = t.SetSize(width, height)
	_, _ = t.Write(nil)
}

// resize follows the terminal's size.
func (s *natScreen) resize() {
	if t := s.terminal.Load(); t != nil {
		s.prompt(t)
	}
}

// completion is tab at the end of a line.
func completion(console *udpnat.Console) func(line string, pos int, key rune) (string, int, bool) {
	return func(line string, pos int, key rune) (string, int, bool) {
		if key != '\t' || pos != len(line) {
			return "", 0, false
		}
		completed, _ := console.Complete(line)
		return completed, len(completed), true
	}
}

// keyReader notes what ReadLine reports as the same end: Ctrl-C, and the terminal's own.
type keyReader struct {
	in          io.Reader
	interrupted bool
	ended       bool
}

func (k *keyReader) Read(b []byte) (int, error) {
	n, err := k.in.Read(b)
	for _, key := range b[:n] {
		k.interrupted = k.interrupted || key == ctrlC
	}
	k.ended = k.ended || err != nil
	return n, err
}

// detach gives the terminal back. It may be called twice.
func (s *natScreen) detach() {
	if t := s.terminal.Swap(nil); t != nil {
		t.SetPrompt("")
		_, _ = io.WriteString(t, "")
		s.restore()
	}
	s.line.Clear()
}

// Write writes the log in a way that keeps the prompt or the live line intact.
func (s *natScreen) Write(b []byte) (int, error) {
	if t := s.terminal.Load(); t != nil {
		return t.Write(b)
	}
	return s.line.Write(b)
}

func (s *natScreen) hello(d *udpnat.Datapath, destinations []string) {
	var at []string
	for _, l := range d.Stats().Listeners {
		at = append(at, l.String())
	}
	fmt.Fprintf(s, "UDP %s to %s; type help for the commands\n", strings.Join(at, ", "), strings.Join(destinations, ", "))
}

// live shows the rates: each second in the prompt or in a line that is redrawn, without a terminal every ten seconds in the
// log.
func (s *natScreen) live(ctx context.Context, d *udpnat.Datapath) {
	if s.quiet {
		<-ctx.Done()
		return
	}
	watched := s.terminal.Load() != nil || s.line.IsTerminal()
	every := time.Second
	if !watched {
		every = cli.LogEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	before, at := d.Stats(), time.Now()
	log := slog.New(slog.NewTextHandler(s.errOut, nil))
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := d.Stats()
		line := rates(&before, &now, time.Since(at))
		switch t := s.terminal.Load(); {
		case t != nil:
			s.mu.Lock()
			s.rates = line
			s.mu.Unlock()
			s.prompt(t)
		case watched:
			s.line.Show(line)
		case now.Counters != before.Counters:
			log.Info("statistics", "line", line)
		}
		before, at = now, time.Now()
	}
}

// rates returns one line about the traffic between two moments.
func rates(before, now *udpnat.Stats, period time.Duration) string {
	per := func(a, b uint64) float64 { return float64(b-a) / max(period.Seconds(), 0.001) }
	a, b := &before.Counters, &now.Counters
	line := fmt.Sprintf("%d entries, %.0f/s to, %.0f/s from destinations", now.Entries, per(a.Forwarded, b.Forwarded), per(a.Backwarded, b.Backwarded))
	for _, extra := range []struct {
		name          string
		before, after uint64
	}{
		{"dropped by faults", a.LostForward + a.LostBackward + a.TooLong, b.LostForward + b.LostBackward + b.TooLong},
		{"wrong routed", a.WrongRouted, b.WrongRouted},
		{"filtered", a.Filtered, b.Filtered},
		{"errors", a.SendErrors + a.ReplyErrors + a.Undecided + a.EntriesFull, b.SendErrors + b.ReplyErrors + b.Undecided + b.EntriesFull},
	} {
		if extra.after > extra.before {
			line += fmt.Sprintf(", %s %.0f/s", extra.name, per(extra.before, extra.after))
		}
	}
	stale := 0
	for i := range now.Backends {
		if now.Backends[i].State != udpnat.Active {
			stale++
		}
	}
	if stale > 0 {
		line += fmt.Sprintf(", %d stale", stale)
	}
	return line
}
