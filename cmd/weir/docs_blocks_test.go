package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

// docBlock is one fenced block of a page.
type docBlock struct {
	page     string
	line     int    // of its first fence
	language string // "" and sh hold commands
	marks    []string
	text     string
}

// docStep is one command and what its page shows of its output. A nil want compares nothing.
type docStep struct {
	at      string
	command string
	want    *string
	code    int
	orZero  bool // the exit code holds under a condition only
	figures bool // any figure may stand where the page shows one
	role    stepRole
}

type stepRole int

const (
	runs       stepRole = iota // to its end
	keepsOn                    // runs until the end of its block; the next command begins once it has printed something
	interrupts                 // no command: ends those that keep on, all of them with exit code 0
)

var docMark = regexp.MustCompile(`^<!-- (.*) -->$`)

// readBlocks returns the fenced blocks of a page.
func readBlocks(t *testing.T, path string) (blocks []docBlock) {
	t.Helper()
	var open *docBlock
	var marks []string
	for i, line := range strings.Split(clitest.ReadPage(t, path), "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		mark := docMark.FindStringSubmatch(line)
		switch {
		case isFence && open == nil:
			open = &docBlock{page: filepath.Base(path), line: i + 1, language: fence, marks: marks}
		case isFence:
			blocks, open, marks = append(blocks, *open), nil, nil
		case open != nil:
			open.text += line + "\n"
		case mark != nil:
			marks = append(marks, mark[1])
		case line != "":
			marks = nil
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: the block has no end", open.page, open.line)
	}
	return blocks
}

// mark returns what follows a word in the comments before the block.
func (b *docBlock) mark(word string) (string, bool) {
	for _, mark := range b.marks {
		if rest, ok := strings.CutPrefix(mark, word+": "); ok {
			return rest, true
		}
	}
	return "", false
}

func (b *docBlock) at(line int) string { return fmt.Sprintf("%s:%d", b.page, b.line+line) }

// steps are the commands of a block, with those that a mark puts before them.
func (b *docBlock) steps() (steps []docStep) {
	for _, mark := range b.marks {
		if command, ok := strings.CutPrefix(mark, "before: "); ok {
			steps = append(steps, newDocStep(b.at(0), command, nil))
		}
	}
	if name, ok := b.mark("file"); ok {
		return append(steps, docStep{at: b.at(0), command: "cat > " + name + " <<'END_OF_FILE'\n" + b.text + "END_OF_FILE"})
	}
	figures := slices.Contains(b.marks, "figures vary")
	if command, ok := b.mark("output of"); ok {
		step := newDocStep(b.at(0), command, &b.text)
		step.figures = figures
		return append(steps, step)
	}
	if _, ok := b.mark("not run"); ok || b.language != "" && b.language != "sh" {
		return nil
	}
	for _, step := range b.untilInterrupted(b.commands()) {
		step.figures = figures
		steps = append(steps, step)
	}
	return steps
}

// untilInterrupted adds where programs that keep on are interrupted: all at the end of the block, or, of the mark "each
// interrupted", each before the next command.
func (b *docBlock) untilInterrupted(commands []docStep) (steps []docStep) {
	all, one := []string{}, []string{}
	for _, mark := range b.marks {
		if prefix, ok := strings.CutPrefix(mark, "keeps on: "); ok {
			all = append(all, prefix)
		} else if prefix, ok := strings.CutPrefix(mark, "each interrupted: "); ok {
			one = append(one, prefix)
		}
	}
	begins := func(command string) func(string) bool {
		return func(prefix string) bool { return strings.HasPrefix(command, prefix) }
	}
	end := docStep{at: b.at(0), role: interrupts}
	for _, step := range commands {
		switch {
		case slices.ContainsFunc(one, begins(step.command)):
			step.role = keepsOn
			steps = append(steps, step, end)
		case slices.ContainsFunc(all, begins(step.command)):
			step.role = keepsOn
			fallthrough
		default:
			steps = append(steps, step)
		}
	}
	if len(all) > 0 {
		steps = append(steps, end)
	}
	return steps
}

// commands are what a block of commands says, each with its output in a transcript.
func (b *docBlock) commands() (steps []docStep) {
	lines := strings.Split(strings.TrimSuffix(b.text, "\n"), "\n")
	transcript := slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "$ ") })
	for i := 0; i < len(lines); i++ {
		at, line, isCommand := b.at(i+1), lines[i], !transcript
		if transcript {
			line, isCommand = strings.CutPrefix(line, "$ ")
		}
		if !isCommand {
			if len(steps) > 0 {
				*steps[len(steps)-1].want += line + "\n"
			}
			continue
		}
		for i+1 < len(lines) && (strings.HasSuffix(line, `\`) || strings.HasPrefix(line, "until ") && !strings.Contains(line, "done")) {
			i++
			line += "\n" + lines[i]
		}
		if found := regexp.MustCompile(`<<'?(\w+)'?`).FindStringSubmatch(line); found != nil {
			for i++; i < len(lines); i++ {
				line += "\n" + lines[i]
				if lines[i] == found[1] {
					break
				}
			}
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		var want *string
		if transcript {
			want = new(string)
		}
		steps = append(steps, newDocStep(at, line, want))
	}
	return steps
}

// newDocStep reads the exit code that a comment behind the command promises.
func newDocStep(at, command string, want *string) docStep {
	step := docStep{at: at, command: command, want: want}
	if found := regexp.MustCompile(`# exit code (\d+)( if)?`).FindStringSubmatch(command); found != nil {
		step.code, _ = strconv.Atoi(found[1])
		step.orZero = found[2] != ""
	}
	return step
}
