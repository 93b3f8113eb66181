package workers_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weir-lb/weir/internal/workers"
)

type worker struct {
	inbox *workers.Inbox[*worker]
	woken chan struct{}
	did   int
	fail  chan error
}

func (w *worker) run() error {
	for w.inbox.Serve(w) {
		select {
		case <-w.woken:
		case err := <-w.fail:
			return err
		}
	}
	return nil
}

func newGroup(n int) (*sync.Mutex, *workers.Group[*worker], []*worker) {
	var lock sync.Mutex
	c := workers.New[*worker](&lock, workers.Limits{})
	var workers []*worker
	for range n {
		w := &worker{woken: make(chan struct{}, 64), fail: make(chan error, 1)}
		w.inbox = c.Add(w, func() { w.woken <- struct{}{} })
		workers = append(workers, w)
	}
	return &lock, c, workers
}

func begin() error { return nil }

func idle(ctx context.Context) { <-ctx.Done() }

// What is asked is done once by each worker before Do returns: before Run, while it runs and after it.
func TestDoReachesEveryWorkerBeforeWhileAndAfterRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock, c, workers := newGroup(3)
		do := func() {
			lock.Lock()
			defer lock.Unlock()
			c.Do(func(w *worker) { w.did++ })
		}
		do()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx, begin, (*worker).run, idle) }()
		synctest.Wait()
		lock.Lock()
		running := c.Running()
		lock.Unlock()
		if !running {
			t.Fatal("not running after Run began")
		}
		do()
		cancel()
		if err := <-ended; err != nil {
			t.Fatalf("Run ended with %v after its context, want nil", err)
		}
		do()
		for i, w := range workers {
			if w.did != 3 {
				t.Errorf("worker %d did %d of 3 requests", i, w.did)
			}
		}
	})
}

// A worker that breaks ends the others, and no one who asked it something waits for ever.
func TestABrokenWorkerEndsAllAndStillAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lock, c, workers := newGroup(2)
		broken := errors.New("socket gone")
		ended := make(chan error)
		leave := make(chan struct{})
		background := func(ctx context.Context) { <-ctx.Done(); <-leave }
		go func() { ended <- c.Run(t.Context(), begin, (*worker).run, background) }()
		synctest.Wait()
		workers[1].fail <- broken
		synctest.Wait() // Run waits for background; the broken worker must still serve
		lock.Lock()
		c.Do(func(w *worker) { w.did++ })
		lock.Unlock()
		close(leave)
		if err := <-ended; !errors.Is(err, broken) {
			t.Fatalf("Run ended with %v, want %v", err, broken)
		}
		if workers[0].did != 1 || workers[1].did != 1 {
			t.Errorf("did %d and %d, want 1 each", workers[0].did, workers[1].did)
		}
	})
}

func TestARefusedRunStartsNothing(t *testing.T) {
	lock, c, workers := newGroup(1)
	refusal := errors.New("closed")
	err := c.Run(t.Context(), func() error { return refusal }, (*worker).run, idle)
	if !errors.Is(err, refusal) || c.Running() {
		t.Fatalf("Run said %v, running %v; want the refusal and not running", err, c.Running())
	}
	lock.Lock()
	defer lock.Unlock()
	c.Do(func(w *worker) { w.did++ })
	if workers[0].did != 1 {
		t.Error("a request after the refusal was not done")
	}
}
