package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// compareOutput compares what a page shows with what a command printed. Spaces count as one, since the width of columns varies.
// … stands for any text within a line, and alone on a line for any lines. With figures, each figure stands for any other.
func compareOutput(want, got string, figures bool) error {
	var pattern strings.Builder
	pattern.WriteString("^")
	for _, line := range strings.Split(oneSpace(want), "\n") {
		if line == "…" {
			pattern.WriteString(`(?:[^\n]*\n)*?`)
			continue
		}
		parts := strings.Split(line, "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
			if figures {
				parts[i] = docFigure.ReplaceAllString(parts[i], `[0-9][0-9.,]*`)
			}
		}
		pattern.WriteString(strings.Join(parts, `[^\n]*`) + `\n`)
	}
	pattern.WriteString("$")
	if !regexp.MustCompile(pattern.String()).MatchString(oneSpace(voidResult.ReplaceAllString(got, "")) + "\n") {
		return fmt.Errorf("the page shows\n%s\nbut it printed\n%s", want, got)
	}
	return nil
}

// voidResult is what a test of TCP connections says on standard error when this machine was too busy to trust its times: pages show counts.
var voidResult = regexp.MustCompile(`(?m)^weir: the result is void: .*: this machine was too busy\n`)

// docFigure is a figure of an expression that regexp.QuoteMeta has made.
var docFigure = regexp.MustCompile(`[0-9](?:[0-9,]|\\\.[0-9])*`)

func oneSpace(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	return strings.Join(lines, "\n")
}

func TestCompareOutput(t *testing.T) {
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{"1,234.5 ms (0%).\n", "7 ms (12%).\n", true},
		{"1 ms\n", "x ms\n", false},
		{"a  b\n", "a b\n", true},
		{"a b\n", "a c\n", false},
		{"a … c\n", "a b b c\n", true},
		{"a\n…\nd\n", "a\nb\nc\nd\n", true},
		{"a\n…\nd\n", "a\nd\n", true},
		{"a\n…\n", "a\n", true},
		{"a\n", "a\nb\n", false},
		{"", "", true},
		{"", "a\n", false},
		{"a…\n", "b\n", false},
		{"1 (2)\n", "1 (2)\n", true},
		{"a\n", "weir: the result is void: a worker was not scheduled for 2.5 s of 4 s: this machine was too busy\na\n", true},
		{"a\n", "weir: the result is void: it lost connections\na\n", false},
	} {
		if err := compareOutput(c.want, c.got, true); (err == nil) != c.same {
			t.Errorf("%q, %q: %v", c.want, c.got, err)
		}
	}
}
