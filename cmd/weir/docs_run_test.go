package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/lab/netlab/netlabtest"
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
}

var docMark = regexp.MustCompile(`^<!-- (.*) -->$`)

// readBlocks returns the fenced blocks of a page, and the reason in its mark "commands not run", if it has one.
func readBlocks(t *testing.T, path string) (blocks []docBlock, notRun string) {
	t.Helper()
	var open *docBlock
	var marks []string
	for i, line := range strings.Split(readPage(t, path), "\n") {
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
			if reason, ok := strings.CutPrefix(mark[1], "commands not run: "); ok {
				notRun = reason
				continue
			}
			marks = append(marks, mark[1])
		case line != "":
			marks = nil
		}
	}
	if open != nil {
		t.Fatalf("%s:%d: the block has no end", open.page, open.line)
	}
	return blocks, notRun
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

// steps are the commands of a block.
func (b *docBlock) steps() (steps []docStep) {
	if command, ok := b.mark("before"); ok {
		steps = append(steps, newDocStep(b.at(0), command, nil))
	}
	if name, ok := b.mark("file"); ok {
		return append(steps, docStep{at: b.at(0), command: "cat > " + name + " <<'END_OF_FILE'\n" + b.text + "END_OF_FILE"})
	}
	if command, ok := b.mark("output of"); ok {
		return append(steps, newDocStep(b.at(0), command, &b.text))
	}
	if _, ok := b.mark("not run"); ok || b.language != "" && b.language != "sh" {
		return nil
	}
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
		for i+1 < len(lines) && (strings.HasSuffix(line, `\`) || strings.HasPrefix(line, "until ") && !strings.HasSuffix(line, "done")) {
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

// The convention of CONTRIBUTING.md, and how many blocks of each page do not run, and why.
func TestEveryCommandBlockRunsOrSaysWhyNot(t *testing.T) {
	ran, reasons := 0, map[string]int{}
	for _, page := range pages(t) {
		blocks, pageReason := readBlocks(t, page)
		for i := range blocks {
			block := &blocks[i]
			reason, marked := block.mark("not run")
			switch {
			case block.language != "" && block.language != "sh" && !marked:
			case pageReason != "":
				reasons[pageReason+" ("+block.page+")"]++
			case marked:
				reasons[reason]++
			default:
				ran++
				if len(block.steps()) == 0 {
					t.Errorf("%s: a block of commands without a command; write ```text", block.at(0))
				}
			}
		}
	}
	t.Logf("%d blocks of commands run", ran)
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		t.Logf("%d do not: %s", reasons[reason], reason)
		if strings.TrimSpace(reason) == "" {
			t.Error("a block is not run, for no reason")
		}
	}
	if ran < 20 {
		t.Errorf("only %d blocks run", ran)
	}
}

// Every command of a page runs in one shell, in the order of the page, in network, mount and process namespaces of its own.
func TestRootDocsRun(t *testing.T) {
	takesSeconds(t)
	netlabtest.Root(t)
	netlabtest.Tools(t, "unshare", "ip", "jq", "pkill", "curl", "tcpdump", "iptables", "iperf")
	for _, page := range pages(t) {
		blocks, pageReason := readBlocks(t, page)
		var steps []docStep
		for i := range blocks {
			if pageReason == "" {
				steps = append(steps, blocks[i].steps()...)
			}
		}
		if len(steps) > 0 {
			t.Run(filepath.Base(page), func(t *testing.T) {
				t.Parallel()
				runSteps(t, steps)
			})
		}
	}
}

// docsSetup gives the shell a machine of its own: loopback, /run with the lab's namespaces and control sockets, BPF pins.
const docsSetup = `set -e
mount -t tmpfs tmpfs /run
mount -t bpf bpf /sys/fs/bpf
ip link set lo up
sysctl -q net.ipv4.ip_forward=1
set +e
`

func runSteps(t *testing.T, steps []docStep) {
	dir, results := docsDirectory(t), t.TempDir()
	var script strings.Builder
	script.WriteString(docsSetup)
	for i, step := range steps {
		fmt.Fprintf(&script, "{ %s\n} >%s/%d.all 2>&1 </dev/null\necho $? >%[2]s/%[3]d.code\ncp %[2]s/%[3]d.all %[2]s/%[3]d.out\n", step.command, results, i)
	}
	// The end of the process namespace's first process ends all others.
	file := filepath.Join(results, "script")
	if err := os.WriteFile(file, []byte(script.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", file)
	shell.Dir = dir
	shell.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "WEIR_TEST_PARENT=") // its process id means nothing in there
	}), "PATH="+filepath.Join(dir, ".bin")+":"+os.Getenv("PATH"), runAsWeir+"=1", "COLUMNS=80")
	out, err := shell.CombinedOutput()
	for i, step := range steps {
		code, readErr := os.ReadFile(filepath.Join(results, strconv.Itoa(i)+".code"))
		got, _ := os.ReadFile(filepath.Join(results, strconv.Itoa(i)+".all"))
		if readErr != nil {
			t.Fatalf("%s: %s: did not end: %v, %v, %s\nprinted\n%s", step.at, step.command, err, ctx.Err(), out, got)
		}
		if finished, err := os.ReadFile(filepath.Join(results, strconv.Itoa(i)+".out")); err == nil {
			got = finished // a program in the background may have gone on writing
		}
		if ended := strings.TrimSpace(string(code)); ended != strconv.Itoa(step.code) && (ended != "0" || !step.orZero) {
			t.Errorf("%s: %s: exit code %s, want %d; printed\n%s", step.at, step.command, ended, step.code, got)
		} else if step.want != nil {
			if err := compareOutput(*step.want, string(got)); err != nil {
				t.Errorf("%s: %s: %v", step.at, step.command, err)
			}
		}
	}
}

// docsDirectory is where a page's commands run: with the repository's examples, and weir and sudo in .bin.
func docsDirectory(t *testing.T) string {
	t.Helper()
	dir, bin := t.TempDir(), ""
	self, err := os.Executable()
	examples, errExamples := filepath.Abs("../../examples")
	bin = filepath.Join(dir, ".bin")
	if err := errors.Join(err, errExamples, os.Mkdir(bin, 0o700), os.Symlink(self, filepath.Join(bin, "weir")),
		os.CopyFS(filepath.Join(dir, "examples"), os.DirFS(examples)),
		os.WriteFile(filepath.Join(bin, "sudo"), []byte("#!/bin/sh\nexec \"$@\"\n"), 0o700)); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return dir
}

// compareOutput compares what a page shows with what a command printed. Spaces count as one, since the width of columns varies.
// … stands for any text within a line, and alone on a line for any lines.
func compareOutput(want, got string) error {
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
		}
		pattern.WriteString(strings.Join(parts, `[^\n]*`) + `\n`)
	}
	pattern.WriteString("$")
	if !regexp.MustCompile(pattern.String()).MatchString(oneSpace(got) + "\n") {
		return fmt.Errorf("the page shows\n%s\nbut it printed\n%s", want, got)
	}
	return nil
}

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
	} {
		if err := compareOutput(c.want, c.got); (err == nil) != c.same {
			t.Errorf("%q, %q: %v", c.want, c.got, err)
		}
	}
}
