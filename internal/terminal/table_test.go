package terminal_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weir-lb/weir/internal/terminal"
)

func TestFit(t *testing.T) {
	for _, c := range []struct {
		name, text string
		width      int
		right      bool
		want       string
	}{
		{"it fits", "A\tB\n1\ttwo\n", 80, false, "A  B\n1  two\n"},
		{"no terminal", "A\tB\n1\t" + strings.Repeat("x", 200) + "\n", 0, false, "A  B\n1  " + strings.Repeat("x", 200) + "\n"},
		{"names and values", "key\tone two three four\nlonger\tx\n", 18, false, "key     one two\n        three four\nlonger  x\n"},
		{"right", "NAME\tA VALUE\t\nbackend one\t1\t\n", 18, true, "     NAME  A VALUE\n  backend        1\n      one\n"},
		{
			"wrapped", "CHECK\tFINDING\tLEVEL\nrules\tfour routes and four rules\tok\n", 32, false,
			"CHECK  FINDING             LEVEL\nrules  four routes and     ok\n       four rules\n",
		},
		{
			"a few rows", "LOAD\tREQUESTS\tSESSIONS\tVERDICT\nmoving\t100\t20\tlost\nother\t7\t8\tkept\n", 26, false,
			"LOAD      moving  other\nREQUESTS  100     7\nSESSIONS  20      8\nVERDICT   lost    kept\n",
		},
		{
			"records", "LOAD\tREQUESTS\tSESSIONS\n" + strings.Repeat("moving\t100\t20\n", 8), 20, false,
			strings.Repeat("LOAD moving\n  REQUESTS  100\n  SESSIONS  20\n", 8),
		},
		{"text between", "a long sentence of words\nA\tB\n1\t2\n", 12, false, "a long\nsentence of\nwords\nA  B\n1  2\n"},
		{"a long word", "key\tabcdefghijklmnopqrstuvwx\n", 16, false, "key  abcdefghijk\n     lmnopqrstuv\n     wx\n"},
	} {
		if got := terminal.Fit(c.text, c.width, c.right); got != c.want {
			t.Errorf("%s: %d columns:\n%s\nwant\n%s", c.name, c.width, got, c.want)
		}
	}
}

// Whatever the table and the width, no line is too long and no character is lost.
func FuzzFit(f *testing.F) {
	f.Add("A\tB\tC\none\ttwo words\tthree\n", 10)
	f.Add("key\tvalue\n\nsentence\nA\tB\n", 1)
	f.Add("\t\t\n\tx\n", 3)
	f.Fuzz(func(t *testing.T, text string, width int) {
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == utf8.RuneError }) || width < 1 || width > 300 {
			t.Skip()
		}
		for _, right := range []bool{false, true} {
			got := terminal.Fit(text, width, right)
			for _, word := range strings.Fields(text) {
				if len(word) < 3 && width > 20 && !strings.Contains(got, word) {
					t.Fatalf("%q, %d: %q is lost in %q", text, width, word, got)
				}
			}
			if width < 20 {
				continue // more columns than that may not fit
			}
			for line := range strings.Lines(got) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width && strings.Count(text, "\t") < 4 {
					t.Fatalf("%q, %d: a line of %d in %q", text, width, n, got)
				}
			}
		}
	})
}
