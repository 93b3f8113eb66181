package terminal

import (
	"io"
	"strings"
)

// Prose writes sentences and a newline. Where out is a terminal that is narrower than one of the lines, the lines of each
// paragraph are filled again to its width. An empty line separates paragraphs; an indented line is one of its own.
func Prose(out io.Writer, text string) error {
	_, err := io.WriteString(out, filled(text, Width(out))+"\n")
	return err
}

func filled(text string, width int) string {
	if width <= 0 || widest(text) <= width {
		return text
	}
	var lines []string
	joins := false
	for _, line := range strings.Split(text, "\n") {
		plain := line != "" && line[0] != ' '
		if joins && plain {
			lines[len(lines)-1] += " " + line
		} else {
			lines = append(lines, line)
		}
		joins = plain
	}
	var out []string
	for _, line := range lines {
		out = append(out, wrapped(line, width)...)
	}
	return strings.Join(out, "\n")
}
