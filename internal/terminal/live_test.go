package terminal_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/terminal"
	"github.com/weir-lb/weir/internal/terminal/terminaltest"
)

// drawer in the environment makes this binary the program in the terminal: it draws what the test says at that socket.
const drawer = "TERMINAL_TEST_DRAWER"

func TestMain(m *testing.M) {
	if address := os.Getenv(drawer); address != "" {
		if err := draw(address); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// order is one step of the program in the terminal.
type order struct {
	Raw   string   `json:"raw,omitempty"`
	Write string   `json:"write,omitempty"`
	Show  []string `json:"show,omitempty"`
	Keep  bool     `json:"keep,omitempty"`
	Clear bool     `json:"clear,omitempty"`
}

func draw(address string) error {
	conn, err := net.Dial("unix", address)
	if err != nil {
		return err
	}
	live := terminal.NewLive(os.Stdout)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		switch {
		case o.Raw != "":
			fmt.Print(o.Raw)
		case o.Write != "":
			fmt.Fprint(live, o.Write)
		case o.Show != nil:
			live.Show(o.Show...)
		case o.Keep:
			live.Keep()
		case o.Clear:
			live.Clear()
		}
	}
	return nil
}

// program is the one that draws.
type program struct {
	*terminaltest.Screen
	t    *testing.T
	conn net.Conn
}

func start(t *testing.T, width, height int) *program {
	t.Helper()
	dir, err := os.MkdirTemp("", "wt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	address := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	p := &program{t: t, Screen: terminaltest.Start(t, width, height, "env", drawer+"="+address, os.Args[0])}
	if p.conn, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.conn.Close() })
	return p
}

func (p *program) do(o order) {
	p.t.Helper()
	if err := json.NewEncoder(p.conn).Encode(o); err != nil {
		p.t.Fatal(err)
	}
}

// shows waits until the terminal shows these lines and nothing else.
func (p *program) shows(lines ...string) {
	p.t.Helper()
	want := strings.Join(lines, "\n")
	p.Wait("\n"+want, func(text string) bool { return text == want })
}

// block is lines of many lengths, all of them with a number that says which drawing it is.
func block(n int) []string {
	lines := []string{}
	for i, length := range []int{20, 200, 81, 0, 41, 101, 161, 40} {
		lines = append(lines, fmt.Sprintf("%d.%d ", n, i)+strings.Repeat("█", length))
	}
	return lines
}

// cut is the block as it must look at a width.
func cut(width int, lines ...string) []string {
	out := []string{}
	for _, line := range lines {
		if runes := []rune(line); len(runes) > width {
			line = string(runes[:width-1]) + "…"
		}
		out = append(out, strings.TrimRight(line, " "))
	}
	return out
}

func TestBlockIsRedrawnInPlace(t *testing.T) {
	for _, width := range []int{40, 80, 100, 160} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			p := start(t, width, 24)
			p.do(order{Raw: "$ command\n"})
			for n := range 5 {
				p.do(order{Show: block(n)})
			}
			p.shows(append([]string{"$ command"}, cut(width, block(4)...)...)...)
			p.do(order{Write: "a log line\n"})
			p.shows(append([]string{"$ command", "a log line"}, cut(width, block(4)...)...)...)
			p.do(order{Show: []string{"shorter"}})
			p.shows("$ command", "a log line", "shorter")
			p.do(order{Show: block(5)})
			p.do(order{Keep: true})
			p.do(order{Raw: "the end\n"})
			p.shows(append(append([]string{"$ command", "a log line"}, cut(width, block(5)...)...), "the end")...)
			p.do(order{Show: block(6)})
			p.do(order{Clear: true})
			p.do(order{Raw: strings.Repeat("w", width+3) + "\n"}) // lines are wrapped again
			p.shows(append(append([]string{"$ command", "a log line"}, cut(width, block(5)...)...), "the end", strings.Repeat("w", width), "www")...)
		})
	}
}

// Terminals either wrap the lines that they show when their width changes, or cut them: tmux does the one on its normal
// screen and the other on its alternate one.
func TestBlockSurvivesResizes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for name, screen := range map[string]string{"wrapping": "$\n", "cutting": "\x1b[?1049h\x1b[H$\n"} {
		t.Run(name, func(t *testing.T) {
			p := start(t, 100, 24)
			p.do(order{Raw: screen})
			p.do(order{Show: block(0)})
			p.shows(append([]string{"$"}, cut(100, block(0)...)...)...)
			// A terminal that wraps may scroll the lines above the block off, and with them what no program reaches any more.
			visible := func(width, n int) {
				want := strings.Join(cut(width, block(n)...), "\n")
				p.Wait("only\n"+want, func(string) bool { return strings.TrimPrefix(p.Visible(), "$\n") == want })
			}
			for n, size := range [][2]int{{60, 24}, {40, 24}, {41, 24}, {160, 40}, {39, 20}, {80, 24}, {100, 30}, {99, 24}} {
				p.Resize(size[0], size[1])
				visible(size[0], n) // the signal alone has it drawn
				p.do(order{Show: block(n + 1)})
				visible(size[0], n+1)
			}
		})
	}
}

func TestBlockHigherThanTheTerminalIsCut(t *testing.T) {
	p := start(t, 80, 6)
	for n := range 4 {
		p.do(order{Show: block(n)})
	}
	p.shows(append(cut(80, block(3)[:4]...), "… 4 more lines")...)
	p.Resize(80, 24)
	p.shows(cut(80, block(3)...)...)
}

func TestCutKeepsTheCursorWhereItIs(t *testing.T) {
	for _, c := range []struct {
		line  string
		width int
		want  string
	}{
		{"short", 5, "short"},
		{"longer", 5, "long…"},
		{"→░█", 3, "→░█"},
		{"a\tb\nc\x1b[A\u0085", 80, "a b c [A "},
		{"x", 1, "x"},
		{"xy", 1, "…"},
	} {
		if got := terminal.Cut(c.line, c.width); got != c.want {
			t.Errorf("%q in %d columns: %q, want %q", c.line, c.width, got, c.want)
		}
	}
}

// What is no terminal gets the log and nothing else.
func TestNoTerminal(t *testing.T) {
	var out strings.Builder
	live := terminal.NewLive(&out)
	live.Show("a block")
	fmt.Fprintln(live, "a line")
	live.Keep()
	live.Clear()
	if out.String() != "a line\n" || live.IsTerminal() {
		t.Errorf("%q", out.String())
	}
}
