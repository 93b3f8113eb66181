package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"golang.org/x/term"
)

// Table aligns lines of cells as text/tabwriter does: a tab ends a cell, a line feed a line. On a terminal that is narrower
// than a table, the table is made to fit: its cells are wrapped at spaces; where that is not enough, a few rows
// become columns, and many become lists of names and values. The first line of a table of more than two columns holds the names.
// Everywhere else (a file, a pipe) tables are as wide as they are.
type Table struct {
	out   io.Writer
	right bool
	text  bytes.Buffer
	err   error // of the blocks that are printed
}

// NewTable writes to out. With right, cells are aligned to the right.
func NewTable(out io.Writer, right bool) *Table { return &Table{out: out, right: right} }

// Write takes lines. Nothing is printed before Flush.
func (t *Table) Write(text []byte) (int, error) { return t.text.Write(text) }

// Pair adds a line of a status: a name, and its value in a format.
func (t *Table) Pair(name, format string, args ...any) {
	fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...))
}

// End ends a block of lines: those that follow have columns of their own. A line without a tab ends one, too.
func (t *Table) End() {
	text := Fit(t.text.String(), Width(t.out), t.right)
	t.text.Reset()
	if t.err == nil {
		_, t.err = io.WriteString(t.out, text)
	}
}

// Flush prints what was written since the last Flush. Its error is also that of the blocks that have ended.
func (t *Table) Flush() error {
	t.End()
	err := t.err
	t.err = nil
	return err
}

// Width is how many columns out has if it is a terminal, or says so by a method Width. 0: as many as are wanted.
func Width(out io.Writer) int {
	switch out := out.(type) {
	case *os.File:
		if width, _, err := term.GetSize(int(out.Fd())); err == nil {
			return width
		}
	case interface{ Width() int }:
		return out.Width()
	}
	return 0
}

const (
	gap         = "  "
	longestWord = 24 // a longer one is cut where it has to be
	highest     = 4  // lines of a cell
)

// Fit aligns lines of cells, and makes them fit into width columns. 0: any number.
func Fit(text string, width int, right bool) string {
	aligned := align(text, right)
	if width <= 0 || widest(aligned) <= width {
		return aligned
	}
	var fitted strings.Builder
	var rows [][]string
	flush := func() {
		if len(rows) > 0 {
			fitted.WriteString(fitRows(rows, width, right))
			rows = nil
		}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.Contains(line, "\t") {
			rows = append(rows, strings.Split(strings.TrimSuffix(line, "\t"), "\t"))
			continue
		}
		flush()
		fitted.WriteString(strings.Join(wrapped(line, width), "\n") + "\n")
	}
	flush()
	return fitted.String()
}

func align(text string, right bool) string {
	var out strings.Builder
	flags := uint(0)
	if right {
		flags = tabwriter.AlignRight
	}
	w := tabwriter.NewWriter(&out, 0, 0, len(gap), ' ', flags)
	io.WriteString(w, text) //nolint:errcheck // memory
	w.Flush()               //nolint:errcheck // memory
	return out.String()
}

func widest(text string) (most int) {
	for line := range strings.Lines(text) {
		most = max(most, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
	}
	return most
}

// fitRows is one table, in the first form that fits.
func fitRows(rows [][]string, width int, right bool) string {
	text := &strings.Builder{}
	for _, row := range rows {
		text.WriteString(strings.Join(row, "\t"))
		if right {
			text.WriteString("\t")
		}
		text.WriteString("\n")
	}
	if aligned := align(text.String(), right); widest(aligned) <= width {
		return aligned
	}
	if widths := columnWidths(rows, width); widths != nil {
		return wrapRows(rows, widths, right)
	}
	if turned := transposed(rows); turned != nil {
		if widths := columnWidths(turned, width); widths != nil {
			return wrapRows(turned, widths, false)
		}
	}
	return records(rows, width)
}

// transposed has a column for each row, which keeps rows comparable. nil: there are too many for that.
func transposed(rows [][]string) [][]string {
	const maximum = 6
	if len(rows) < 2 || len(rows)-1 > maximum {
		return nil
	}
	turned := make([][]string, len(rows[0]))
	for _, row := range rows {
		if len(row) != len(turned) {
			return nil
		}
		for c, cell := range row {
			turned[c] = append(turned[c], strings.TrimSpace(cell))
		}
	}
	return turned
}

// columnWidths shares width among the columns: what is narrow stays whole, and so do words. nil: there is not enough.
func columnWidths(rows [][]string, width int) []int {
	natural, words := naturalWidths(rows)
	if len(natural) < 2 || len(natural) > 2 && len(rows) < 2 {
		return nil
	}
	room := width - len(gap)*(len(natural)-1)
	widths := make([]int, len(natural))
	for limit := widestOf(natural); ; limit-- {
		sum := 0
		for c, n := range natural {
			widths[c] = min(n, max(limit, words[c]))
			sum += widths[c]
		}
		if sum <= room {
			break
		}
		if limit > 0 {
			continue
		}
		if widths[1] = room - widths[0]; len(natural) > 2 || widths[1] < len(gap) {
			return nil
		}
		break // a name and a value: the value is cut where it has to be
	}
	for _, row := range rows[1:] {
		for c, cell := range row {
			if len(natural) > 2 && len(wrapped(cell, widths[c])) > highest {
				return nil
			}
		}
	}
	return widths
}

// naturalWidths are those of the columns' cells, and of their longest words.
func naturalWidths(rows [][]string) (widths, words []int) {
	for _, row := range rows {
		for c, cell := range row {
			if c == len(widths) {
				widths, words = append(widths, 0), append(words, 0)
			}
			widths[c] = max(widths[c], utf8.RuneCountInString(cell))
			for _, word := range strings.Fields(cell) {
				words[c] = min(longestWord, max(words[c], utf8.RuneCountInString(word)))
			}
		}
	}
	return widths, words
}

func widestOf(widths []int) (most int) {
	for _, w := range widths {
		most = max(most, w)
	}
	return most
}

// wrapRows prints rows whose cells take as many lines as they need.
func wrapRows(rows [][]string, widths []int, right bool) string {
	var out strings.Builder
	for _, row := range rows {
		cells, lines := make([][]string, len(row)), 1
		for c, cell := range row {
			cells[c] = wrapped(cell, widths[c])
			lines = max(lines, len(cells[c]))
		}
		for n := range lines {
			var line strings.Builder
			for c := range row {
				part := ""
				if n < len(cells[c]) {
					part = cells[c][n]
				}
				space := strings.Repeat(" ", max(0, widths[c]-utf8.RuneCountInString(part)))
				if right {
					part = space + part
				} else {
					part += space
				}
				line.WriteString(part + gap)
			}
			out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		}
	}
	return out.String()
}

// records prints each row as a list of names and values: the first value above, the others below it.
func records(rows [][]string, width int) string {
	names := rows[0]
	body := rows[1:]
	if len(body) == 0 {
		return strings.Join(wrapped(strings.Join(names, gap), width), "\n") + "\n"
	}
	label := 0
	for _, name := range names[1:] {
		label = max(label, utf8.RuneCountInString(strings.TrimSpace(name)))
	}
	label = min(label, width/2)
	var out strings.Builder
	for _, row := range body {
		out.WriteString(strings.Join(wrapped(strings.TrimSpace(names[0]+" "+strings.TrimSpace(row[0])), width), "\n") + "\n")
		list := [][]string{}
		for c, cell := range row[1:] {
			name := ""
			if c+1 < len(names) {
				name = strings.TrimSpace(names[c+1])
			}
			list = append(list, []string{gap + name, strings.TrimSpace(cell)})
		}
		out.WriteString(wrapRows(list, []int{label + len(gap), max(1, width-label-2*len(gap))}, false))
	}
	return out.String()
}

// wrapped cuts a line at spaces, and words that are longer than width anywhere. What it is indented by stays.
func wrapped(line string, width int) (lines []string) {
	if utf8.RuneCountInString(line) <= width || width <= 0 {
		return []string{line}
	}
	words := strings.Fields(line)
	now := line[:len(line)-len(strings.TrimLeft(line, " "))]
	empty := true
	for len(words) > 0 {
		word := words[0]
		space := " "
		if empty {
			space = ""
		}
		switch n := utf8.RuneCountInString(now + space + word); {
		case n <= width:
			now, empty, words = now+space+word, false, words[1:]
		case !empty:
			lines, now, empty = append(lines, now), "", true
		default:
			runes := []rune(word)
			room := max(1, width-utf8.RuneCountInString(now))
			lines = append(lines, now+string(runes[:room]))
			now, words[0] = "", string(runes[room:])
		}
	}
	return append(lines, now)
}

// Quantity is a count with its noun.
func Quantity(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
