//go:build ignore

// Testsum reads `go test -json` and prints what a person wants of it: a line per package while they end, the whole
// output of what failed, the slowest packages and tests, the skips, and a closing line. It exits with 1 when anything
// failed, and, under WEIR_ROOT=1, when any test skipped: where everything can run, a test that did not has proved nothing.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
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
	broken  int // packages that failed without a failing test
	failed  bool
}

func main() {
	s := summary{root: os.Getenv("WEIR_ROOT") == "1", running: map[string]*result{}, builds: map[string]*bytes.Buffer{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e.Action == "" {
			fmt.Println(lines.Text()) // not an event: go itself speaks
			continue
		}
		s.add(e)
	}
	if err := lines.Err(); err != nil {
		fmt.Println("read events:", err)
		s.failed = true
	}
	if !s.close() {
		os.Exit(1)
	}
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
		s.failed = true
		fmt.Printf("BUILD FAILED %s\n%s", short(e.ImportPath), s.builds[e.ImportPath])
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
	failures := 0
	for _, r := range s.ended {
		if r.pkg == p.pkg && r.test != "" && s.bad(r) {
			failures++
			fmt.Printf("--- %s %s\n%s", strings.ToUpper(r.action), r.name(), r.output.String())
		}
	}
	// What never ended was running when the package died: its output says why.
	for _, r := range s.running {
		if r.pkg == p.pkg && r.test != "" && p.action == "fail" {
			failures++
			fmt.Printf("--- UNFINISHED %s\n%s", r.name(), r.output.String())
		}
	}
	if p.action == "fail" {
		fmt.Print(p.output.String())
		if failures == 0 { // it did not build, or died outside a test
			s.broken++
		}
	}
	if p.action != "skip" { // skip: no test files
		fmt.Printf("%-5s %7.1f s  %s\n", p.action, p.elapsed, short(p.pkg))
	}
}

func (s *summary) bad(r *result) bool {
	return r.action == "fail" || r.action == "skip" && s.root && r.test != ""
}

// close prints the end and reports whether everything passed.
func (s *summary) close() bool {
	var passed, failed, skipped int
	var packages, tests, skips []*result
	for _, r := range s.ended {
		switch {
		case r.test == "":
			if r.action != "skip" { // no test files
				packages = append(packages, r)
			}
			s.failed = s.failed || r.action == "fail"
			continue
		case s.bad(r):
			s.failed = true
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
	for _, r := range s.running { // its package ended, or go was killed, before it did
		if r.test != "" {
			s.failed = true
			failed++
		}
	}
	failed += s.broken
	slowest("packages", packages)
	slowest("tests", tests)
	for _, r := range skips {
		fmt.Printf("skipped: %s: %s\n", r.name(), reason(r.output.String()))
	}
	if passed == 0 {
		s.failed = true
		fmt.Println("no test ran")
	}
	line := fmt.Sprintf("%d passed, %d failed, %d skipped", passed, failed, skipped)
	fmt.Println(line)
	if err := os.WriteFile(".ci/out/summary", []byte(line+"\n"), 0o644); err != nil {
		fmt.Println(err)
	}
	return !s.failed
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
