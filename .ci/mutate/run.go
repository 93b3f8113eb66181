package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

type outcome int

const (
	notCovered outcome = iota
	survived
	killed
	ended // by a limit: it looped, blocked or took too much memory
)

// test is one test function: what it costs without a mutant, and whose places it executes.
type test struct {
	*suite
	name    string
	cpu     time.Duration
	reached []byte // by mutant number
}

// runner runs the tests that count for one package.
type runner struct {
	scratch string
	tests   []*test // the quickest first
}

// quick is the processor time of a test that runs together with the other quick ones before the slow ones.
const quick = 300 * time.Millisecond

// prepare runs every test alone without a mutant and notes what it reaches. All must pass.
func (r *runner) prepare(suites []suite, mutants int) error {
	for i := range suites {
		names, err := suites[i].tests()
		if err != nil {
			return err
		}
		for _, name := range names {
			r.tests = append(r.tests, &test{suite: &suites[i], name: name})
		}
	}
	errs := make([]error, len(r.tests))
	parallel(len(r.tests), func(i int) { errs[i] = r.tests[i].prepare(filepath.Join(r.scratch, strconv.Itoa(i)+".reach"), mutants) })
	slices.SortFunc(r.tests, func(a, b *test) int { return cmp.Compare(a.cpu, b.cpu) })
	return errors.Join(errs...)
}

func (t *test) prepare(reach string, mutants int) error {
	if err := os.WriteFile(reach, make([]byte, mutants+1), 0o600); err != nil {
		return err
	}
	cpu, out, err := t.suite.run([]string{t.name}, time.Hour, "WEIR_MUTANT_REACH="+reach)
	if err != nil {
		return fmt.Errorf("%s fails without a mutant: %w\n%s", t.name, err, out)
	}
	t.cpu = cpu
	t.reached, err = os.ReadFile(reach)
	return err
}

// try runs the tests that reach a mutant while it is active, the quick ones of a suite together and first.
func (r *runner) try(m *mutant) outcome {
	type batch struct {
		*suite
		names []string
		cost  time.Duration
	}
	var batches []batch
	for _, t := range r.tests {
		if t.reached[m.number] == 0 {
			continue
		}
		i := slices.IndexFunc(batches, func(b batch) bool { return b.suite == t.suite })
		if i < 0 || t.cpu >= quick {
			i, batches = len(batches), append(batches, batch{suite: t.suite})
		}
		batches[i].names, batches[i].cost = append(batches[i].names, t.name), batches[i].cost+t.cpu
	}
	if len(batches) == 0 {
		return notCovered
	}
	for _, b := range batches {
		_, _, err := b.run(b.names, b.cost, "WEIR_MUTANT="+strconv.Itoa(m.number))
		var exit *exec.ExitError
		switch {
		case err == nil:
		case errors.As(err, &exit) && exit.ExitCode() < 0: // a signal, which is a limit's
			return ended
		default:
			return killed
		}
	}
	return survived
}

// run runs tests and returns their processor time. A run that takes three times the expected time, or too much memory, is
// ended: a mutant may loop for ever. The limit counts processor time, so a busy machine kills no mutant; a run that waits for
// ever without using any is ended after a time that no run needs that can go on.
func (s *suite) run(names []string, expected time.Duration, env ...string) (time.Duration, string, error) {
	seconds := 3 + int(3*expected/time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*60*time.Second)
	defer cancel()
	limits := fmt.Sprintf(`ulimit -t %d -v 8000000; exec "$@"`, seconds)
	cmd := exec.CommandContext(ctx, "bash", "-c", limits, "bash", s.binary, "-test.failfast", "-test.timeout=0", "-test.run", "^("+strings.Join(names, "|")+")$")
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		return 0, string(out), err
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), string(out), err
}

// parallel calls work for 0 to n-1, as many at once as there are processors.
func parallel(n int, work func(i int)) {
	var group sync.WaitGroup
	next := make(chan int)
	for range workers {
		group.Go(func() {
			for i := range next {
				work(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
}
