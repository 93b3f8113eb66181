package netlabtest

import (
	"context"
	"sync"
	"testing"
)

// Run runs a server or a data path until stop is called, or else until the test ends, and waits for its end then. Its error is one
// of the test.
func Run(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}
