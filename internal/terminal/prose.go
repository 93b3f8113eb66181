package terminal

import (
	"io"
	"strings"
)

// Prose writes sentences and a newline. Where out is a terminal that is narrower than one of the lines, the lines of each
// paragraph are filled again to its width. An empty line separates paragraphs; an indented line is one of its own. Where indented lines
// are a name and, in one column, what it means, they keep that column.
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
	for i := 0; i < len(lines); {
		end := i
		for end < len(lines) && strings.HasPrefix(lines[end], "  ") {
			end++
		}
		column := columnOf(lines[i:end])
		for end = max(end, i+1); i < end; i++ {
			out = append(out, hanging(lines[i], column, width)...)
		}
	}
	return strings.Join(out, "\n")
}

// columnOf is where the second column of lines begins, such as those of a list of commands; 0: they have none.
func columnOf(lines []string) (column int) {
	for _, line := range lines {
		name, _, _ := strings.Cut(line[2:], " ")
		column = max(column, len("  ")+len(name)+len(" "))
	}
	for _, line := range lines {
		if len(line) <= column || line[column-1] != ' ' || line[column] == ' ' {
			return 0
		}
	}
	return column
}

// hanging is wrapped with the rest of a line below its second column.
func hanging(line string, column, width int) []string {
	if column == 0 || column > width/2 {
		return wrapped(line, width)
	}
	lines := wrapped(line[column:], width-column)
	for i := range lines {
		if i == 0 {
			lines[i] = line[:column] + lines[i]
		} else {
			lines[i] = strings.Repeat(" ", column) + lines[i]
		}
	}
	return lines
}
