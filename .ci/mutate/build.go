package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// helper is compiled into the package under test. WEIR_MUTANT is the number of the active mutant; WEIR_MUTANT_REACH names a
// file with a byte for each mutant, set once its place in the code is executed.
const helper = `package %s

import (
	weirOS "os"
	weirStrconv "strconv"
	weirSyscall "syscall"
)

var (
	weirActive, _ = weirStrconv.Atoi(weirOS.Getenv("WEIR_MUTANT"))
	weirReached   = weirReach(weirOS.Getenv("WEIR_MUTANT_REACH"))
)

func weirMutant(number int) bool {
	if weirReached != nil {
		weirReached[number] = 1
	}
	return number == weirActive
}

func weirReach(name string) []byte {
	if name == "" {
		return nil
	}
	file, err := weirOS.OpenFile(name, weirOS.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	reached, err := weirSyscall.Mmap(int(file.Fd()), 0, %d, weirSyscall.PROT_READ|weirSyscall.PROT_WRITE, weirSyscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return reached
}
`

// suite is a test binary with all mutants of a package inside, and the tests in it that count.
type suite struct {
	path, dir, binary string
	only              *regexp.Regexp
}

// build compiles the tests of a package, and those elsewhere that count for it, with all its mutants inside. It returns the
// mutants that compile. A line that the compiler refuses loses its mutants: Go has no place for them.
func (t *target) build(mutants []*mutant, dir string) ([]*mutant, []suite, error) {
	suites := []suite{{path: t.path, dir: t.dir, only: regexp.MustCompile("")}}
	for path, only := range elsewhere[shortPath(t.path)] {
		at, err := filepath.Abs(path)
		if err != nil {
			return nil, nil, err
		}
		suites = append(suites, suite{path: path, dir: at, only: regexp.MustCompile(only)})
	}
	for i := range suites {
		suites[i].binary = filepath.Join(dir, strconv.Itoa(i)+".test")
		for {
			out, err := t.compile(&suites[i], mutants, dir)
			if err == nil {
				break
			}
			kept := withoutLines(mutants, out)
			if len(kept) == len(mutants) || i > 0 {
				return nil, nil, fmt.Errorf("%s with the mutants of %s does not compile: %w\n%s", suites[i].path, t.path, err, out)
			}
			mutants = kept
		}
	}
	return mutants, suites, nil
}

// compile builds the binary of a suite; it returns what the compiler says.
func (t *target) compile(s *suite, mutants []*mutant, dir string) (string, error) {
	overlay, err := t.overlay(mutants, dir)
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "test", "-c", "-vet=off", "-gcflags="+t.path+"=-e", "-overlay", overlay, "-o", s.binary, s.path).CombinedOutput()
	return string(out), err
}

var position = regexp.MustCompile(`(?m)^\S*?([^/\s]+\.go):(\d+):`)

func withoutLines(mutants []*mutant, compiler string) []*mutant {
	refused := map[string]bool{}
	for _, at := range position.FindAllStringSubmatch(compiler, -1) {
		refused[at[1]+":"+at[2]] = true
	}
	return slices.DeleteFunc(slices.Clone(mutants), func(m *mutant) bool {
		return refused[filepath.Base(m.source.path)+":"+strconv.Itoa(m.line)]
	})
}

// overlay writes the changed files and returns the name of the file that `go test -overlay` wants.
func (t *target) overlay(mutants []*mutant, dir string) (string, error) {
	replace := map[string]string{}
	write := func(original string, text []byte) error {
		replace[original] = filepath.Join(dir, filepath.Base(original))
		return os.WriteFile(replace[original], text, 0o644)
	}
	last := 0
	for _, s := range t.sources {
		var mine []*mutant
		for _, m := range mutants {
			if last = max(last, m.number); m.source == s {
				mine = append(mine, m)
			}
		}
		if err := write(s.path, s.with(mine)); err != nil {
			return "", err
		}
	}
	if err := write(filepath.Join(t.dir, "weirmutant.go"), fmt.Appendf(nil, helper, t.name, last+1)); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, text, 0o644)
}

// with returns the text of a file with its mutants in it. Lines keep their numbers.
func (s *source) with(mutants []*mutant) []byte {
	type insertion struct {
		at, rank int
		text     string
	}
	var list []insertion
	for i, m := range mutants {
		// Of two edits of one range the first is outside; an edit that ends where another begins closes first.
		size := m.edit.end - m.edit.start
		list = append(list,
			insertion{m.edit.start, 1<<40 - size<<16 + i, m.edit.before(m.number)},
			insertion{m.edit.end, -1<<40 + size<<16 - i, m.edit.after(m.number)})
	}
	slices.SortStableFunc(list, func(a, b insertion) int {
		if a.at != b.at {
			return a.at - b.at
		}
		return a.rank - b.rank
	})
	var out bytes.Buffer
	done := 0
	for _, in := range list {
		out.Write(s.text[done:in.at])
		out.WriteString(in.text)
		done = in.at
	}
	out.Write(s.text[done:])
	return out.Bytes()
}

// tests returns the names of the tests, examples and fuzz targets of a suite that count.
func (s *suite) tests() ([]string, error) {
	list := exec.Command(s.binary, "-test.list", ".")
	list.Dir = s.dir
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("%s -test.list: %w", s.binary, err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool {
		return strings.HasPrefix(name, "Benchmark") || !s.only.MatchString(name)
	}), nil
}
