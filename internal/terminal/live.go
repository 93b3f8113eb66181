package terminal

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// Live is a block of lines that is redrawn in place, also when the size of the terminal changes. Its methods may be
// called at the same time. Where out is no terminal, Show does nothing and Write passes everything on.
type Live struct {
	out  io.Writer
	file *os.File // nil: no terminal

	mu      sync.Mutex
	lines   []string
	resized chan os.Signal // not nil while the block stands
}

// NewLive draws on out, if it is a terminal.
func NewLive(out io.Writer) *Live {
	l := &Live{out: out}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		l.file = file
	}
	return l
}

// IsTerminal reports whether Show draws.
func (l *Live) IsTerminal() bool { return l.file != nil }

// Width is how many columns the terminal has now. 0: there is none.
func (l *Live) Width() int {
	if l.file == nil {
		return 0
	}
	width, _ := l.size()
	return width
}

// Show replaces the block.
func (l *Live) Show(lines ...string) {
	if l.file == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = lines
	if l.resized == nil {
		l.resized = make(chan os.Signal, 1)
		signal.Notify(l.resized, unix.SIGWINCH)
		go l.follow(l.resized)
	}
	l.draw("")
}

// Write prints above the block: a log, for instance. What it is given should end with a line feed.
func (l *Live) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resized == nil {
		return l.out.Write(text)
	}
	l.draw(string(text))
	return len(text), nil
}

// Clear erases the block. Show draws a new one.
func (l *Live) Clear() { l.end(false) }

// Keep leaves the block where it is and puts the cursor below it. Show draws a new one.
func (l *Live) Keep() { l.end(true) }

func (l *Live) end(keep bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.resized == nil {
		return
	}
	signal.Stop(l.resized)
	close(l.resized)
	l.resized = nil
	last := clearLine + clearBelow
	if keep {
		last = l.block(l.lines) + "\r\n"
	}
	io.WriteString(l.out, noWrap+last+wrap) //nolint:errcheck // a terminal that is gone does not stop the command
}

// follow draws again for each change of the size.
func (l *Live) follow(resized chan os.Signal) {
	for range resized {
		l.mu.Lock()
		if l.resized == resized {
			l.draw("")
		}
		l.mu.Unlock()
	}
}

const (
	noWrap    = "\x1b[?7l" // a line longer than the terminal is cut, should its width change meanwhile
	wrap      = "\x1b[?7h"
	clearLine = "\r\x1b[2K"
	// clearBelow erases the rest of the screen, not from the first column on: from the top left corner of the screen, it
	// would be the whole screen, which some terminals keep a copy of.
	clearBelow = " \x1b[J\r"
)

// draw prints text where the block was, and the block below it, in one write. Under mu.
func (l *Live) draw(text string) {
	if text != "" {
		text = clearLine + clearBelow + text
	}
	_, height := l.size()
	lines := l.lines
	if room := max(height-1, 1); len(lines) > room {
		lines = append(append([]string{}, lines[:room-1]...), fmt.Sprintf("… %d more lines", len(lines)-room+1))
	}
	text += noWrap + l.block(lines) + "\r"
	if up := len(lines) - 1; up > 0 {
		text += fmt.Sprintf("\x1b[%dA", up)
	}
	io.WriteString(l.out, text+wrap) //nolint:errcheck // a terminal that is gone does not stop the command
}

// block is what draws lines over what stands there and erases what stands below.
func (l *Live) block(lines []string) string {
	width, _ := l.size()
	var b strings.Builder
	for i, line := range lines {
		b.WriteString(clearLine)
		if i == len(lines)-1 {
			b.WriteString(clearBelow)
		}
		b.WriteString(Cut(line, width))
		if i < len(lines)-1 {
			b.WriteString("\r\n")
		}
	}
	return b.String()
}

// size is what the terminal is now; the classic one if it does not say.
func (l *Live) size() (width, height int) {
	width, height, err := term.GetSize(int(l.file.Fd()))
	if err != nil || width < 1 || height < 1 {
		return 80, 24
	}
	return width, height
}

// Cut shortens line to width columns, the last of them an ellipsis, and replaces control characters, which could move
// the cursor. Every character counts as one column.
func Cut(line string, width int) string {
	runes := []rune(line)
	if len(runes) > width {
		runes = append(runes[:max(width-1, 0)], '…')
	}
	for i, r := range runes {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			runes[i] = ' '
		}
	}
	return string(runes)
}
