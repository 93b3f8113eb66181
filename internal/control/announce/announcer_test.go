package announce

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// recorder is a driver that remembers what it was given.
type recorder struct {
	mu     sync.Mutex
	now    string
	events []string // each change, with the second in which it came
	start  time.Time
	fails  error
	closed bool
}

func (r *recorder) Apply(_ *lb.Announce, routes []Route) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fails == nil {
		if now := text(routes[:1]); now != r.now {
			r.now = now
			r.events = append(r.events, time.Since(r.start).String()+" "+routes[0].State.String())
		}
	}
	return r.fails
}

func (r *recorder) Describe(*v1.AnnounceStatus) {}

func (r *recorder) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

func (r *recorder) set(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails = err
}

// world is a loop whose snapshot the test sets.
type world struct {
	mu       sync.Mutex
	snapshot *lb.Snapshot
	changed  chan struct{}
	detached string
}

func (w *world) applied() (*lb.Snapshot, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.snapshot, w.changed
}

func (w *world) set(snapshot *lb.Snapshot) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.snapshot = snapshot
	close(w.changed)
	w.changed = make(chan struct{})
}

func (w *world) why() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.detached
}

// What is announced follows health, an operator and the end of the process, in time; the data path ends after the withdrawal.
func TestAnnouncer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const graceful = "require: any"
		good := snapshotOf(t, graceful, nil)
		good.Announce.BGP.GracefulShutdown = 3 * time.Second
		bad := *good
		down := (*lb.Overrides)(nil).With(lb.Target{Service: "dns"}, lb.FromOperator, lb.OverrideDown).With(lb.Target{Service: "web"}, lb.FromOperator, lb.OverrideDown)
		bad.Services = snapshotOf(t, graceful, down).Services
		w := &world{snapshot: good, changed: make(chan struct{})}
		r := &recorder{start: time.Now()}
		a := New(Options{Applied: w.applied, Detached: w.why, Drivers: []Driver{r}})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		datapathEnded := time.Duration(0)
		go func() {
			ended <- a.Serve(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				datapathEnded = time.Since(r.start)
				return nil
			})
		}()
		at := func(seconds time.Duration) {
			time.Sleep(time.Until(r.start.Add(seconds * time.Second)))
			synctest.Wait()
		}
		at(1)
		w.set(&bad)
		at(2)
		w.set(good)
		at(3)
		a.SetWithdrawn(true) // retiring until 6
		at(4)
		a.SetWithdrawn(false)
		at(5)
		a.SetWithdrawn(true) // until 8
		at(10)
		a.SetWithdrawn(false)
		at(11)
		w.mu.Lock()
		w.detached = "no interface"
		w.mu.Unlock()
		at(13)
		w.mu.Lock()
		w.detached = ""
		w.mu.Unlock()
		at(15)
		r.set(errors.New("no route"))
		w.set(&bad)
		at(16)
		if status := a.Status(); status.Error != "no route" || status.State != "serving" {
			t.Errorf("%+v", status)
		}
		r.set(nil)
		at(18)
		if status := a.Status(); status.Error != "" || status.Prefixes[0].State != "withdrawn" {
			t.Errorf("%+v", status)
		}
		w.set(good)
		at(20)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want := []string{
			"0s announced", "1s withdrawn", "2s announced", "3s retiring", "4s announced", "5s retiring", "8s withdrawn", "10s announced",
			"11.5s withdrawn", "13.5s announced", "16.5s withdrawn", "18s announced", "20s retiring", "23s withdrawn",
		}
		got := slices.Clone(r.events)
		for i, event := range got { // the retry and the check have their own times
			if i < len(want) && (i == 8 || i == 9 || i == 10) {
				got[i] = event[:2] + want[i][2:]
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q\nwant %q", r.events, want)
		}
		if !r.closed || datapathEnded != 23*time.Second {
			t.Errorf("closed %v, the data path ended after %v", r.closed, datapathEnded)
		}
	})
}

// A data path that ends by itself withdraws everything at once.
func TestAnnouncerWithdrawsWithTheDataPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := snapshotOf(t, "require: any", nil)
		good.Announce.BGP.GracefulShutdown = time.Minute
		w := &world{snapshot: good, changed: make(chan struct{})}
		r := &recorder{start: time.Now()}
		broken := errors.New("broken")
		a := New(Options{Applied: w.applied, Drivers: []Driver{r}})
		err := a.Serve(t.Context(), func(context.Context) error {
			time.Sleep(2 * time.Second)
			return broken
		})
		if !errors.Is(err, broken) || !slices.Equal(r.events, []string{"0s announced", "2s withdrawn"}) || !r.closed {
			t.Errorf("%v, %q, closed %v", err, r.events, r.closed)
		}
	})
}
