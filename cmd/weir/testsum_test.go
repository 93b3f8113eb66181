package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// stream is what go test -json says, with the lines of .ci/test between.
type stream struct{ strings.Builder }

func (s *stream) event(action, pkg, test, output string, code float64) {
	text, _ := json.Marshal(map[string]any{"Action": action, "Package": "github.com/weir-lb/weir/" + pkg, "Test": test, "Output": output, "Elapsed": code})
	fmt.Fprintln(s, string(text))
}

// test is one test from its start to its end.
func (s *stream) test(pkg, name, action string, says ...string) {
	s.event("run", pkg, name, "", 0)
	for _, line := range append([]string{"=== RUN   " + name}, says...) {
		s.event("output", pkg, name, line+"\n", 0)
	}
	if action != "" {
		s.event("output", pkg, name, fmt.Sprintf("--- %s: %s (0.00s)\n", strings.ToUpper(action), name), 0)
		s.event(action, pkg, name, "", 0)
	}
}

// end is the end of a package: in order unless it ended.
func (s *stream) end(pkg, action string, died bool) {
	if action == "fail" && !died {
		s.event("output", pkg, "", "FAIL\n", 0)
	}
	if action == "fail" {
		s.event("output", pkg, "", "FAIL\t"+pkg+"\t0.01s\n", 0)
	}
	s.event(action, pkg, "", "", 0.01)
}

func (s *stream) exit(run string, code int) {
	fmt.Fprintf(s, `{"Action":"exit","Package":%q,"Elapsed":%d}`+"\n", run, code)
}

// What CI says of a run: what fails, what fails once and passes alone, and what is never tried again.
func TestTestsum(t *testing.T) {
	program := filepath.Join(t.TempDir(), "testsum")
	if out, err := exec.Command("go", "build", "-o", program, "../../.ci/testsum.go").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pass := func(s *stream, name string) { s.test("internal/b", name, "pass") }
	for _, c := range []struct {
		name   string
		record func(*stream)
		again  string // tests that pass when run again
		root   bool
		code   int
		line   string
		want   []string
		never  []string // patterns
		reruns []string // in order: mode, test, package
	}{
		{
			name: "all pass", line: "2 passed, 0 failed, 1 skipped",
			record: func(s *stream) {
				s.test("internal/a", "TestX", "pass")
				s.test("internal/a", "TestS", "skip", "    a_test.go:1: no such thing")
				s.end("internal/a", "pass", false)
				s.exit("race", 0)
				pass(s, "TestY")
				s.end("internal/b", "pass", false)
				s.exit("plain", 0)
			},
			want: []string{"skipped: internal/a TestS: a_test.go:1: no such thing"},
		},
		{
			name: "one fails once, of two runs", again: "TestX", line: "2 passed, 0 failed, 0 skipped, 1 flaky",
			record: func(s *stream) {
				s.event("run", "internal/a", "TestX", "", 0)
				s.test("internal/a", "TestX/one", "fail", "    a_test.go:3: never came")
				s.test("internal/a", "TestX/two", "pass")
				s.event("output", "internal/a", "TestX", "--- FAIL: TestX (0.00s)\n", 0)
				s.event("fail", "internal/a", "TestX", "", 0)
				s.end("internal/a", "fail", false)
				s.exit("race", 123)
				pass(s, "TestY")
				s.end("internal/b", "pass", false)
				s.exit("plain", 0)
			},
			want:   []string{"flaky: failed once, passed alone: internal/a TestX", "a_test.go:3: never came"},
			never:  []string{`(?m)^--- FAIL`, `(?mi)^FAIL`},
			reruns: []string{"-race ^TestX$ internal/a"},
		},
		{
			name: "two fail, one again", again: "TestX", code: 1, line: "1 passed, 1 failed, 0 skipped, 1 flaky",
			record: func(s *stream) {
				s.test("internal/a", "TestX", "fail", "    first X")
				s.end("internal/a", "fail", false)
				s.exit("race", 123)
				s.test("internal/b", "TestZ", "fail", "    first Z")
				pass(s, "TestY")
				s.end("internal/b", "fail", false)
				s.exit("plain", 123)
			},
			want:   []string{"flaky: failed once, passed alone: internal/a TestX", "--- FAIL internal/b TestZ\n", "first Z", "--- FAIL internal/b TestZ, once more, alone", "second TestZ"},
			reruns: []string{"-race ^TestX$ internal/a", "^TestZ$ internal/b"},
		},
		{
			name: "three fail", again: "TestX TestY TestZ", code: 1, line: "1 passed, 3 failed, 0 skipped",
			record: func(s *stream) {
				s.test("internal/a", "TestX", "fail", "    first X")
				s.test("internal/a", "TestY", "fail")
				s.end("internal/a", "fail", false)
				s.exit("race", 123)
				s.test("internal/b", "TestZ", "fail")
				pass(s, "TestY")
				s.end("internal/b", "fail", false)
				s.exit("plain", 123)
			},
			want: []string{"--- FAIL internal/a TestX\n", "first X", "no test is run once more: 3 failed"},
		},
		{
			name: "a data race", again: "TestX", code: 1, line: "1 passed, 1 failed, 0 skipped",
			record: func(s *stream) {
				s.test("internal/a", "TestX", "fail", "WARNING: DATA RACE")
				s.end("internal/a", "fail", false)
				s.exit("race", 123)
				pass(s, "TestY")
				s.end("internal/b", "pass", false)
				s.exit("plain", 0)
			},
			want: []string{"a data race was found in internal/a TestX"},
		},
		{
			name: "a panic hides the tests behind it", again: "TestX", code: 1, line: "1 passed, 2 failed, 0 skipped",
			record: func(s *stream) {
				s.test("internal/a", "TestX", "fail", "panic: boom")
				s.end("internal/a", "fail", true)
				s.exit("race", 123)
				pass(s, "TestY")
				s.end("internal/b", "pass", false)
				s.exit("plain", 0)
			},
			want: []string{"panic: boom", "internal/a died"},
		},
		{
			name: "a time-out", again: "TestX", code: 1, line: "1 passed, 1 failed, 0 skipped",
			record: func(s *stream) {
				s.test("internal/a", "TestX", "", "panic: test timed out after 30m0s")
				s.end("internal/a", "fail", true)
				s.exit("race", 123)
				pass(s, "TestY")
				s.end("internal/b", "pass", false)
				s.exit("plain", 0)
			},
			want: []string{"--- UNFINISHED internal/a TestX", "test timed out", "internal/a TestX did not end"},
		},
		{
			name: "a package does not build", again: "TestX", code: 1, line: "1 passed, 2 failed, 0 skipped",
			record: func(s *stream) {
				fmt.Fprintln(s, `{"ImportPath":"github.com/weir-lb/weir/internal/c [x]","Action":"build-output","Output":"c.go:1: nonsense\n"}`)
				fmt.Fprintln(s, `{"ImportPath":"github.com/weir-lb/weir/internal/c [x]","Action":"build-fail"}`)
				s.end("internal/c", "fail", true)
				s.test("internal/a", "TestX", "fail")
				s.end("internal/a", "fail", false)
				s.exit("race", 123)
				pass(s, "TestY")
				s.end("internal/b", "pass", false)
				s.exit("plain", 0)
			},
			want: []string{"BUILD FAILED internal/c [x]\nc.go:1: nonsense", "internal/c does not build"},
		},
		{
			name: "a skip where everything can run", root: true, code: 1, line: "1 passed, 1 failed, 0 skipped",
			record: func(s *stream) {
				s.test("internal/a", "TestS", "skip", "    no such thing")
				s.end("internal/a", "pass", false)
				s.exit("race", 0)
				pass(s, "TestY")
				s.end("internal/b", "pass", false)
				s.exit("plain", 0)
			},
			want: []string{"--- SKIP internal/a TestS", "no such thing"},
		},
		{
			name: "go test fails and no one says why", code: 1, line: "1 passed, 1 failed, 0 skipped",
			record: func(s *stream) {
				s.exit("race", 1)
				pass(s, "TestY")
				s.end("internal/b", "pass", false)
				s.exit("plain", 0)
			},
			want: []string{"go test of the race run ended with code 1"},
		},
		{
			name: "cut off", code: 1, line: "1 passed, 2 failed, 0 skipped",
			record: func(s *stream) {
				s.exit("race", 0)
				pass(s, "TestY")
				s.event("run", "internal/b", "TestZ", "", 0)
			},
			want: []string{"internal/b TestZ did not end", "the plain run did not end"},
		},
		{
			name: "nothing ran", code: 1, line: "0 passed, 1 failed, 0 skipped", want: []string{"no test ran"},
			record: func(s *stream) { s.exit("race", 0); s.exit("plain", 0) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			file := func(name, text string) string {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
				return path
			}
			// In place of go: notes its arguments, and says how the test ends this time.
			again := file("go", `#!/bin/sh
echo "$@" >>`+dir+`/asked
for pkg; do :; done
name=$(echo "$*" | sed 's/.*\^\(.*\)\$.*/\1/')
action=fail
case " `+c.again+` " in *" $name "*) action=pass ;; esac
echo "{\"Action\":\"output\",\"Package\":\"$pkg\",\"Test\":\"$name\",\"Output\":\"second $name\\n\"}"
echo "{\"Action\":\"$action\",\"Package\":\"$pkg\",\"Test\":\"$name\"}"
[ $action = pass ]
`)
			var events stream
			c.record(&events)
			cmd := exec.Command(program, "-go", again, "-race", file("race", "github.com/weir-lb/weir/internal/a\n"), "-summary", filepath.Join(dir, "summary"))
			cmd.Stdin = strings.NewReader(events.String())
			cmd.Env = append(os.Environ(), "WEIR_ROOT="+map[bool]string{true: "1"}[c.root])
			out, _ := cmd.CombinedOutput()
			text := string(out)
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.HasSuffix(text, "\n"+c.line+"\n") {
				t.Errorf("exit code %d, want %d; want the end %q", code, c.code, c.line)
			}
			if kept, err := os.ReadFile(filepath.Join(dir, "summary")); err != nil || string(kept) != c.line+"\n" {
				t.Errorf("kept %q, %v", kept, err)
			}
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("no %q", want)
				}
			}
			for _, never := range c.never {
				if found := regexp.MustCompile(never).FindString(text); found != "" {
					t.Errorf("%q is in it", found)
				}
			}
			var asked []string
			if record, err := os.ReadFile(filepath.Join(dir, "asked")); err == nil {
				for line := range strings.Lines(string(record)) {
					line = strings.TrimPrefix(strings.TrimSpace(line), "test -json -count=1 -timeout 30m -run ")
					words := strings.Fields(strings.ReplaceAll(line, "github.com/weir-lb/weir/", ""))
					if len(words) == 3 { // TEST -race PACKAGE
						words[0], words[1] = words[1], words[0]
					}
					asked = append(asked, strings.Join(words, " "))
				}
			}
			if strings.Join(asked, ", ") != strings.Join(c.reruns, ", ") {
				t.Errorf("run again: %q, want %q", asked, c.reruns)
			}
			if t.Failed() {
				t.Logf("its output:\n%s", text)
			}
		})
	}
}
