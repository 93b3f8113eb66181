package main

import (
	"context"
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
)

// test is one test function: what it costs without a mutant, and whose places it executes.
type test struct {
	name    string
	cpu     time.Duration
	reached []byte // by mutant number
}

// runner runs the test binary of one package.
type runner struct {
	binary, dir, scratch string
	tests                []*test
}

// quick is the processor time of a test that runs together with the other quick ones before the slow ones.
const quick = 300 * time.Millisecond

// prepare runs every test alone without a mutant and notes what it reaches. All must pass.
func (r *runner) prepare(names []string, mutants int) error {
	r.tests = make([]*test, len(names))
	errs := make([]error, len(names))
	parallel(len(names), func(i int) {
		reach := filepath.Join(r.scratch, names[i]+".reach")
		if errs[i] = os.WriteFile(reach, make([]byte, mutants+1), 0o600); errs[i] != nil {
			return
		}
		cpu, out, err := r.run(names[i:i+1], time.Hour, "WEIR_MUTANT_REACH="+reach)
		if err != nil {
			errs[i] = fmt.Errorf("%s fails without a mutant: %w\n%s", names[i], err, out)
			return
		}
		reached, err := os.ReadFile(reach)
		r.tests[i], errs[i] = &test{names[i], cpu, reached}, err
	})
	slices.SortFunc(r.tests, func(a, b *test) int {
		if a == nil || b == nil {
			return 0
		}
		return int(a.cpu - b.cpu)
	})
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// try runs the tests that reach a mutant while it is active, the quick ones together and first.
func (r *runner) try(m *mutant) outcome {
	var first []string
	var cost time.Duration
	var slow []*test
	for _, t := range r.tests {
		switch {
		case t.reached[m.number] == 0:
		case t.cpu < quick:
			first, cost = append(first, t.name), cost+t.cpu
		default:
			slow = append(slow, t)
		}
	}
	if len(first) == 0 && len(slow) == 0 {
		return notCovered
	}
	active := "WEIR_MUTANT=" + strconv.Itoa(m.number)
	if len(first) > 0 {
		if _, _, err := r.run(first, cost, active); err != nil {
			return killed
		}
	}
	for _, t := range slow {
		if _, _, err := r.run([]string{t.name}, t.cpu, active); err != nil {
			return killed
		}
	}
	return survived
}

// run runs tests and returns their processor time. A run that takes three times the expected time, or too much memory, is
// ended: a mutant may loop for ever. The limit counts processor time, so a busy machine kills no mutant.
func (r *runner) run(names []string, expected time.Duration, env ...string) (time.Duration, string, error) {
	seconds := 3 + int(3*expected/time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(seconds)*20*time.Second)
	defer cancel()
	limits := fmt.Sprintf(`ulimit -t %d -v 8000000; exec "$@"`, seconds)
	cmd := exec.CommandContext(ctx, "bash", "-c", limits, "bash", r.binary, "-test.failfast", "-test.timeout=0", "-test.run", "^("+strings.Join(names, "|")+")$")
	cmd.Dir = r.dir
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
