// Command mutate measures what the tests of a package notice. It changes the code in one small place at a time (a comparison negated
// or its boundary moved, a condition ignored, an operator swapped, a statement removed, a result replaced by zero values), runs
// the package's own tests, and those that `elsewhere` names, and counts the changes, called mutants, that no test fails for.
//
// All mutants of a package are compiled into one test binary (go test -overlay), and an environment variable selects the active
// one: a mutant costs the run of the tests that reach it, and no compilation.
//
//	go run ./.ci/mutate -sample 10 ./internal/steering/...   every tenth mutant, always the same ones
//	go run ./.ci/mutate -only 'rate/' ./internal/steering/rate
//
// The columns of its table: "killed" are the mutants that a test failed for, "ended" those that blocked or took three times the
// processor time (they count as killed), "refused" those that do not compile, "equivalent" those of -equivalents; the last two
// do not count. "not covered" are survivors whose place in the code no test executes.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

var workers = runtime.NumCPU()

// elsewhere has the tests of other packages that count for a package, by the package they are in: bad files with their expected
// errors, which need package config to be read, and the conformance corpus, whose packets leave byte for byte as it says.
var elsewhere = map[string]map[string]string{
	"steering/lb":     {"./internal/control": "^Test(BadConfigurations|ExamplesCompile)$"},
	"steering/packet": {"./internal/steering/steer": "^TestCorpus(AsRouter)?$"},
}

// options are the flags.
type options struct {
	sample      uint
	minimum     float64
	only        *regexp.Regexp
	equivalents map[string]bool
}

// row is one line of the table.
type row struct {
	name                                        string
	mutants, killed, ended, survived, uncovered int
	refused, skipped                            int
	took                                        time.Duration
}

func main() {
	sample := flag.Uint("sample", 1, "try one mutant of `N`, always the same ones")
	minimum := flag.Float64("min", 0, "exit with 1 when less than this `percentage` of all mutants is killed")
	only := flag.String("only", "", "try the mutants whose id matches this `regexp`")
	file := flag.String("equivalents", ".ci/mutate/equivalent.txt", "`file` of mutants that change nothing one could observe")
	flag.Parse()
	equivalents, err := readEquivalents(*file)
	if err == nil {
		o := options{max(*sample, 1), *minimum, regexp.MustCompile(*only), equivalents}
		err = run(o, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(o options, patterns []string) error {
	targets, err := load(patterns)
	if err != nil {
		return err
	}
	total := row{name: "all"}
	fmt.Printf("%-24s %8s %8s %6s %8s %12s %8s %11s %7s %8s\n", "package", "mutants", "killed", "ended", "survived", "not covered", "refused", "equivalent", "score", "time")
	for _, t := range targets {
		r, left, err := t.score(o)
		if err != nil {
			return err
		}
		r.print()
		for _, m := range left {
			fmt.Printf("    line %d: %s\n", m.line, m.describe())
		}
		total.add(r)
	}
	total.print()
	if o.sample == 1 && o.only.String() == "" {
		for id, met := range o.equivalents {
			if !met && covers(targets, id) {
				return fmt.Errorf("the list of equivalent mutants names one that does not exist: %s", id)
			}
		}
	}
	if total.score() < o.minimum {
		return fmt.Errorf("%.1f %% of the mutants are killed, and %.1f %% are wanted", total.score(), o.minimum)
	}
	return nil
}

// score tries the mutants of one package and returns those that no test failed for.
func (t *target) score(o options) (row, []*mutant, error) {
	start := time.Now()
	r := row{name: shortPath(t.path)}
	dir, err := os.MkdirTemp("", "weir-mutate-")
	if err != nil {
		return r, nil, err
	}
	defer os.RemoveAll(dir)
	found := t.find()
	all, suites, err := t.build(found, dir)
	if err != nil {
		return r, nil, err
	}
	r.refused = len(found) - len(all)
	chosen := r.choose(all, o)
	runs := &runner{scratch: dir}
	if err := runs.prepare(suites, all[len(all)-1].number); err != nil {
		return r, nil, err
	}
	parallel(len(chosen), func(i int) { chosen[i].outcome = runs.try(chosen[i]) })
	var left []*mutant
	for _, m := range chosen {
		switch m.outcome {
		case killed:
			r.killed++
			continue
		case ended:
			r.ended++
			continue
		case survived:
			r.survived++
		case notCovered:
			r.uncovered++
		}
		left = append(left, m)
	}
	r.took = time.Since(start)
	return r, left, nil
}

// choose returns the mutants to try: without the equivalent ones, and of the others the sample.
func (r *row) choose(all []*mutant, o options) []*mutant {
	var chosen []*mutant
	for _, m := range all {
		hash := fnv.New32a()
		hash.Write([]byte(m.id))
		if hash.Sum32()%uint32(o.sample) != 0 || !o.only.MatchString(m.id) {
			continue
		}
		if _, ok := o.equivalents[m.id]; ok {
			o.equivalents[m.id] = true
			r.skipped++
			continue
		}
		chosen = append(chosen, m)
	}
	r.mutants = len(chosen)
	return chosen
}

func (r *row) score() float64 { return 100 * float64(r.killed+r.ended) / float64(max(r.mutants, 1)) }

func (r *row) add(o row) {
	r.mutants, r.killed, r.ended, r.survived = r.mutants+o.mutants, r.killed+o.killed, r.ended+o.ended, r.survived+o.survived
	r.uncovered, r.refused, r.skipped, r.took = r.uncovered+o.uncovered, r.refused+o.refused, r.skipped+o.skipped, r.took+o.took
}

func (r *row) print() {
	fmt.Printf("%-24s %8d %8d %6d %8d %12d %8d %11d %5.1f %% %8s\n", r.name, r.mutants, r.killed, r.ended, r.survived, r.uncovered, r.refused, r.skipped, r.score(), r.took.Round(time.Second))
}

func (m *mutant) describe() string {
	if m.outcome == notCovered {
		return "not covered: " + m.id
	}
	return m.id
}

// readEquivalents reads lines of `id: reason`, after ` :: `. Empty lines and those that begin with # are comments.
func readEquivalents(name string) (map[string]bool, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	list := map[string]bool{}
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, ok := strings.Cut(line, " :: ")
		if !ok || reason == "" {
			return nil, fmt.Errorf("%s:%d: a line is ID :: REASON", name, n)
		}
		list[id] = false
	}
	return list, lines.Err()
}

// covers reports whether an id belongs to one of the packages of this run.
func covers(targets []*target, id string) bool {
	file, _, _ := strings.Cut(id, " ")
	return slices.ContainsFunc(targets, func(t *target) bool { return path.Dir(file) == shortPath(t.path) })
}
