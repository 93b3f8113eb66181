package main

import (
	"fmt"
	"io"
	"sync"
)

// lineGuard keeps a line that redraws at the bottom of a terminal apart from the log.
type lineGuard struct {
	mu       sync.Mutex
	standing bool
}

func (g *lineGuard) live(out io.Writer, line string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.standing = true
	fmt.Fprint(out, "\r"+line+"\x1b[K")
}

func (g *lineGuard) clear(out io.Writer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.standing {
		g.standing = false
		fmt.Fprint(out, "\r\x1b[K")
	}
}

func (g *lineGuard) write(out io.Writer, b []byte) (int, error) {
	g.clear(out)
	g.mu.Lock()
	defer g.mu.Unlock()
	return out.Write(b)
}
