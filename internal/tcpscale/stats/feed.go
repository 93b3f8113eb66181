package stats

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/tcpscale"
)

// Feed passes the newest reports on to a service, while the run that they are of goes on: nothing waits for it, and no failure is
// one of the run. While the service is away it tries again after 1 s, then 2 s, up to 30 s. A nil Feed does nothing.
type Feed struct {
	sender *Sender
	say    func(format string, args ...any)
	wake   chan struct{}
	ended  chan struct{}
	cancel context.CancelFunc // of what is being sent

	mu      sync.Mutex
	newest  []tcpscale.Report // not sent yet
	closing bool
}

const (
	feedFirstWait = time.Second
	feedLongest   = 30 * time.Second
	feedFarewell  = 3 * time.Second
)

// NewFeed starts one. say gets a line when the service cannot be reached or refuses, once, and one when it takes reports again.
func NewFeed(sender *Sender, say func(format string, args ...any)) *Feed {
	ctx, cancel := context.WithCancel(context.Background())
	f := &Feed{sender: sender, say: say, wake: make(chan struct{}, 1), ended: make(chan struct{}), cancel: cancel}
	go f.run(ctx)
	return f
}

// Post gives reports, one of each server or client, in place of those that were not sent yet. It does not wait. Reports
// that say nothing, as no worker has spoken yet, are left out.
func (f *Feed) Post(reports ...tcpscale.Report) {
	if f == nil {
		return
	}
	reports = slices.DeleteFunc(slices.Clone(reports), func(r tcpscale.Report) bool { return r.Role == "" })
	if len(reports) == 0 {
		return
	}
	f.mu.Lock()
	f.newest = reports
	f.mu.Unlock()
	f.nudge()
}

// Close sends what is not sent yet, for at most 3 seconds, and ends the feed. Post must not be called any more.
func (f *Feed) Close() {
	if f == nil {
		return
	}
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	f.cancel()
	f.nudge()
	<-f.ended
}

func (f *Feed) nudge() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *Feed) run(ctx context.Context) {
	defer close(f.ended)
	var wait time.Duration
	for {
		<-f.wake
		reports, closing := f.take()
		if closing {
			break
		}
		err := f.send(ctx, reports)
		switch {
		case ctx.Err() != nil:
			f.giveBack(reports)
			continue
		case err == nil && wait > 0:
			f.say("statistics: %s takes reports again", f.sender.host)
			wait = 0
		case err != nil && wait == 0:
			f.say("statistics: %v; the run goes on, and the reports come when it is back", err)
			wait = feedFirstWait
		case err != nil:
			wait = min(2*wait, feedLongest)
		}
		if err != nil {
			f.giveBack(reports)
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
		}
	}
	reports, _ := f.take()
	ctx, cancel := context.WithTimeout(context.Background(), feedFarewell)
	defer cancel()
	if err := f.send(ctx, reports); err != nil && wait == 0 {
		f.say("statistics: the last report did not arrive: %v", err)
	}
}

// take returns what is not sent yet; when the feed closes it stays.
func (f *Feed) take() (reports []tcpscale.Report, closing bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		return f.newest, true
	}
	reports, f.newest = f.newest, nil
	return reports, false
}

// giveBack keeps what did not arrive, unless there is something newer.
func (f *Feed) giveBack(reports []tcpscale.Report) {
	f.mu.Lock()
	if f.newest == nil {
		f.newest = reports
	}
	f.mu.Unlock()
	f.nudge()
}

// send posts reports one after another. One that is refused does not keep the others back, a service that is not there does.
func (f *Feed) send(ctx context.Context, reports []tcpscale.Report) (first error) {
	for i := range reports {
		err := f.sender.Send(ctx, &reports[i])
		if first == nil {
			first = err
		}
		if away := (*url.Error)(nil); errors.As(err, &away) {
			break
		}
	}
	return first
}
