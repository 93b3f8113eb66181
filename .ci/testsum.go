// Command testsum reads `go test -json` and prints what a person wants of it: a line per package while they end, the whole
// output of what failed, the slowest packages and tests, the skips, and a closing line. It exits with 1 when anything
// failed, and, under WEIR_ROOT=1, when any test skipped: where everything can run, a test that did not has proved nothing.
//
// One or two failed tests are run once more, each alone (docs/adr/0007-failed-tests-once-more.md).
//
// Between the events it wants {"Action":"exit","Package":NAME,"Elapsed":CODE} after each `go test`, which is named in -runs:
// a code that no failed package explains is a failure.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// event is one line of `go test -json` (see `go doc test2json`; build events carry ImportPath).
type event struct {
	Action, Package, ImportPath, Test, Output, FailedBuild string
	Elapsed                                                float64
}

// result is one test, or one package when test is empty.
type result struct {
	pkg, test, action string
	elapsed           float64
	output            bytes.Buffer
	parent            bool // has subtests: not counted itself
}

func (r *result) name() string { return strings.TrimSpace(short(r.pkg) + " " + r.test) }

func short(pkg string) string { return strings.TrimPrefix(pkg, "github.com/weir-lb/weir/") }

// summary collects the results in the order in which they ended.
type summary struct {
	root    bool // skips are failures
	running map[string]*result
	ended   []*result
	builds  map[string]*bytes.Buffer
	runs    []string // whose end is still to come
	broken  []string // what went wrong apart from tests
	red     bool     // a package failed in the run that goes on
	flaky   []*result
}

func main() {
	file := flag.String("summary", ".ci/out/summary", "file for the closing line")
	runs := flag.String("runs", "race,plain", "names of the runs that must end")
	again := rerun{}
	flag.StringVar(&again.program, "go", "go", "go command for what is run once more")
	flag.StringVar(&again.raceList, "race", ".ci/out/race", "file with the packages that run under the race detector")
	flag.Parse()
	s := newSummary(os.Getenv("WEIR_ROOT") == "1")
	s.runs = strings.Split(*runs, ",")
	s.read(os.Stdin)
	s.printFailures(&again)
	line, ok := s.close()
	fmt.Println(line)
	if err := os.WriteFile(*file, []byte(line+"\n"), 0o644); err != nil {
		fmt.Println(err)
	}
	if !ok {
		os.Exit(1)
	}
}

func newSummary(root bool) *summary {
	return &summary{root: root, running: map[string]*result{}, builds: map[string]*bytes.Buffer{}}
}

func (s *summary) read(from io.Reader) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Action == "" {
			fmt.Println(lines.Text()) // not an event: output of go itself
			continue
		}
		s.add(e)
	}
	if err := lines.Err(); err != nil {
		s.wrong("read events: %v", err)
	}
	for _, r := range s.running { // its package ended, or go was killed, before it did
		s.wrong("%s did not end", r.name())
	}
	for _, name := range s.runs {
		s.wrong("the %s run did not end", name)
	}
}

func (s *summary) wrong(format string, args ...any) {
	s.broken = append(s.broken, fmt.Sprintf(format, args...))
}

func (s *summary) add(e event) {
	switch e.Action {
	case "build-output":
		if s.builds[e.ImportPath] == nil {
			s.builds[e.ImportPath] = &bytes.Buffer{}
		}
		s.builds[e.ImportPath].WriteString(e.Output)
		return
	case "build-fail":
		s.red = true
		name, _, _ := strings.Cut(short(e.ImportPath), " ") // of "weir/x [weir/x.test]" the package
		s.wrong("%s does not build", name)
		fmt.Printf("BUILD FAILED %s\n%s", short(e.ImportPath), s.builds[e.ImportPath])
		return
	case "exit": // ours, of .ci/test
		s.runs = slices.DeleteFunc(s.runs, func(name string) bool { return name == e.Package })
		if e.Elapsed != 0 && !s.red {
			s.wrong("go test of the %s run ended with code %v, and no package failed", e.Package, e.Elapsed)
		}
		s.red = false
		return
	}
	key := e.Package + "\x00" + e.Test
	r := s.running[key]
	if r == nil {
		r = &result{pkg: e.Package, test: e.Test}
		s.running[key] = r
		if i := strings.LastIndex(e.Test, "/"); i > 0 {
			if parent := s.running[e.Package+"\x00"+e.Test[:i]]; parent != nil {
				parent.parent = true
			}
		}
	}
	switch e.Action {
	case "output":
		r.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		r.action, r.elapsed = e.Action, e.Elapsed
		s.ended = append(s.ended, r)
		delete(s.running, key)
		if r.test == "" {
			s.packageEnded(r)
		}
	}
}

func (s *summary) packageEnded(p *result) {
	failures, unfinished := 0, 0
	for _, r := range s.ended {
		if r.pkg == p.pkg && r.test != "" && s.bad(r) {
			failures++
			// Indented: whether it counts as a failure is known at the end.
			fmt.Printf("    %s %s\n%s", r.action, r.name(), indented(r.output.String()))
		}
	}
	// What never ended was running when the package ended early: its output says why.
	for _, r := range s.running {
		if r.pkg == p.pkg && r.test != "" && p.action == "fail" {
			unfinished++
			fmt.Printf("--- UNFINISHED %s\n%s", r.name(), r.output.String())
		}
	}
	if p.action == "fail" {
		s.red = true
		fmt.Print(indented(p.output.String()))
		// A package that ends in order says FAIL alone in a line: one that ended early may not have run all its tests.
		inOrder := strings.Contains("\n"+p.output.String(), "\nFAIL\n")
		if (failures == 0 || !inOrder) && unfinished == 0 && !s.broke(p.pkg) {
			s.wrong("%s ended early", short(p.pkg))
		}
	}
	switch line := fmt.Sprintf("%-5s %7.1f s  %s\n", p.action, p.elapsed, short(p.pkg)); p.action {
	case "skip": // no test files
	case "fail":
		fmt.Print(indented(line))
	default:
		fmt.Print(line)
	}
}

// broke reports whether it is known already what is wrong with a package.
func (s *summary) broke(pkg string) bool {
	return slices.ContainsFunc(s.broken, func(what string) bool { return strings.HasPrefix(what, short(pkg)+" ") })
}

func (s *summary) bad(r *result) bool {
	return r.action == "fail" || r.action == "skip" && s.root && r.test != ""
}

// close prints the end and returns the closing line, and whether everything passed.
func (s *summary) close() (line string, ok bool) {
	var passed, failed, skipped int
	var packages, tests, skips []*result
	for _, r := range s.ended {
		switch {
		case r.test == "":
			if r.action != "skip" { // no test files
				packages = append(packages, r)
			}
			continue
		case s.isFlaky(r):
		case s.bad(r):
			if !r.parent || r.action == "skip" {
				failed++
			}
		case r.parent:
		case r.action == "skip":
			skipped++
			skips = append(skips, r)
		default:
			passed++
		}
		if !strings.Contains(r.test, "/") {
			tests = append(tests, r)
		}
	}
	slowest("packages", packages)
	slowest("tests", tests)
	for _, r := range skips {
		fmt.Printf("skipped: %s: %s\n", r.name(), reason(r.output.String()))
	}
	if passed == 0 {
		s.wrong("no test ran")
	}
	for _, what := range s.broken {
		fmt.Println(what)
	}
	failed += len(s.broken)
	line = fmt.Sprintf("%d passed, %d failed, %d skipped", passed, failed, skipped)
	if len(s.flaky) > 0 {
		line += fmt.Sprintf(", %d flaky", len(s.flaky))
	}
	return line, failed == 0
}

func slowest(what string, results []*result) {
	slices.SortStableFunc(results, func(a, b *result) int { return cmp.Compare(b.elapsed, a.elapsed) })
	fmt.Printf("\nslowest %s:\n", what)
	for _, r := range results[:min(8, len(results))] {
		fmt.Printf("%7.1f s  %s\n", r.elapsed, r.name())
	}
	fmt.Println()
}

// reason is the line of a skipped test's output that says why.
func reason(output string) string {
	for line := range strings.Lines(output) {
		if !strings.HasPrefix(strings.TrimSpace(line), "---") && !strings.HasPrefix(line, "===") {
			return strings.TrimSpace(line)
		}
	}
	return "no reason given"
}

func indented(output string) string {
	var b strings.Builder
	for line := range strings.Lines(output) {
		b.WriteString("    " + strings.TrimSuffix(line, "\n") + "\n")
	}
	return b.String()
}

// mostAgain is how many failed tests are run once more: with more of them it is no accident.
const mostAgain = 2

// rerun runs a test again.
type rerun struct{ program, raceList string }

// failures are the failed top-level tests, in the order in which they ended.
func (s *summary) failures() (top []*result) {
	for _, r := range s.ended {
		if r.test != "" && r.action == "fail" && !strings.Contains(r.test, "/") {
			top = append(top, r)
		}
	}
	return top
}

// of returns what a top-level test and its subtests have printed, the tests that failed first of all.
func (s *summary) of(top *result) string {
	var b strings.Builder
	for _, r := range s.ended {
		if r.belongs(top) && (s.bad(r) || r == top) {
			b.WriteString(r.output.String())
		}
	}
	return b.String()
}

func (r *result) belongs(top *result) bool {
	return r.pkg == top.pkg && (r.test == top.test || strings.HasPrefix(r.test, top.test+"/"))
}

func (s *summary) isFlaky(r *result) bool {
	return s.bad(r) && slices.ContainsFunc(s.flaky, r.belongs)
}

// printFailures runs what may be an accident once more, and prints all failures, and those that were one.
func (s *summary) printFailures(again *rerun) {
	top := s.failures()
	why := s.noRerun(top)
	if len(top) > 0 && why != "" {
		fmt.Printf("\nno test is run once more: %s\n", why)
	}
	for _, r := range top {
		first, second, passed := s.of(r), "", false
		if why == "" {
			second, passed = again.run(r)
		}
		switch {
		case passed:
			s.flaky = append(s.flaky, r)
			fmt.Printf("\nflaky: failed once, passed alone: %s\n%s", r.name(), indented(first))
		case why == "":
			fmt.Printf("\n--- FAIL %s\n%s--- FAIL %s, once more, alone\n%s", r.name(), first, r.name(), second)
		default:
			fmt.Printf("\n--- FAIL %s\n%s", r.name(), first)
		}
	}
	for _, r := range s.ended {
		if r.action == "skip" && s.bad(r) {
			fmt.Printf("\n--- SKIP %s\n%s", r.name(), r.output.String())
		}
	}
}

// noRerun says why nothing is run again; empty: it may.
func (s *summary) noRerun(top []*result) string {
	if len(top) > mostAgain {
		return fmt.Sprintf("%d failed, which is no accident", len(top))
	}
	if len(s.broken) > 0 {
		return "more is wrong than tests: " + strings.Join(s.broken, ", ")
	}
	for _, r := range s.ended {
		if strings.Contains(r.output.String(), "WARNING: DATA RACE") || strings.Contains(r.output.String(), "race detected during execution") {
			return "a data race was found in " + r.name()
		}
		if r.action == "skip" && s.bad(r) {
			return r.name() + " skipped"
		}
	}
	return ""
}

// run runs one top-level test alone, in the mode of its package, and returns its output and whether it passed.
func (again *rerun) run(r *result) (output string, passed bool) {
	args := []string{"test", "-json", "-count=1", "-timeout", "30m", "-run", "^" + r.test + "$"}
	list, err := os.ReadFile(again.raceList)
	if err != nil {
		return err.Error() + "\n", false
	}
	if slices.Contains(strings.Fields(string(list)), r.pkg) {
		args = append(args, "-race")
	}
	args = append(args, r.pkg)
	fmt.Printf("\nonce more, alone: %s %s\n", again.program, strings.Join(args, " "))
	out, err := exec.Command(again.program, args...).CombinedOutput()
	s := newSummary(os.Getenv("WEIR_ROOT") == "1")
	var text strings.Builder
	for line := range bytes.Lines(out) {
		var e event
		if json.Unmarshal(line, &e) != nil || e.Action == "" {
			text.Write(line)
			continue
		}
		text.WriteString(e.Output)
		if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
			s.ended = append(s.ended, &result{pkg: e.Package, test: e.Test, action: e.Action})
		}
	}
	passed = err == nil && !slices.ContainsFunc(s.ended, s.bad) && !strings.Contains(text.String(), "WARNING: DATA RACE") &&
		slices.ContainsFunc(s.ended, func(e *result) bool { return e.test == r.test && e.action == "pass" })
	if err != nil {
		fmt.Fprintln(&text, err)
	}
	return text.String(), passed
}
