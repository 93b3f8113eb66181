package stats

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/tcpscale"
)

// Config says how much is kept. The zero value is of use.
type Config struct {
	MaxReporters int           // default 256
	MaxWatchers  int           // of the events; default 32
	SilentAfter  time.Duration // default 10 s
	ForgetAfter  time.Duration // default 10 min
	Expect       int           // connections that should come; 0: none expected. Drawn with what is observed
	Page         http.Handler  // GET of everything else; nil: 404
	// Token is wanted by all but /livez: as `Authorization: Bearer TOKEN`, as the password of Basic, or as a page's cookie,
	// which GET /?token=TOKEN sets; empty: none.
	Token       string
	OpenReports bool // reports and metrics need no token
	// HostAllowed looks at the Host header of every request; nil: any will do.
	HostAllowed func(host string) bool

	Now func() time.Time // default time.Now; with its monotonic part
	Log *slog.Logger     // default: none
}

// originalSilentAfter is for programs that report when something changes or every ten seconds.
const originalSilentAfter = time.Minute

// ErrFull is the answer to a new reporter when every place is taken by a live one.
var ErrFull = errors.New("every place is taken by a reporter that is alive: raise --max-reporters")

// Service takes reports and serves their sums. All methods may be called from several goroutines.
type Service struct {
	config  Config
	started time.Time
	answers chan struct{} // Run sends on it to whoever waits in Respond

	mu        sync.Mutex
	reporters map[string]*reporter // by key
	all       *history
	dropped   Dropped
	reports   uint64
	watchers  map[*watcher]struct{}
	decoding  chan struct{} // bounds the memory of reports being decoded
	bodies    atomic.Int64  // bytes of reports being read
}

// reporter is one server or client.
type reporter struct {
	key       string // of the history, 16 hexadecimal digits
	address   string
	original  bool
	report    tcpscale.Report // without what is not shown
	last      time.Time
	state     string // as of the last tick or report
	restarts  int
	rates     Rates
	cpu       float64 // percent of one core
	base      tcpscale.Totals
	baseCPU   float64
	baseAt    time.Time
	latencies latencies
	history   *history
}

// latencies are the few numbers of a report's histograms that are kept, in milliseconds.
type latencies struct{ rtt50, rtt99, connect50, connect99, detected99, reconnect99 float64 }

// New returns a service without reporters.
func New(config Config) *Service {
	config.MaxReporters = cmp.Or(config.MaxReporters, 256)
	config.MaxWatchers = cmp.Or(config.MaxWatchers, 32)
	config.SilentAfter = cmp.Or(config.SilentAfter, 10*time.Second)
	config.ForgetAfter = cmp.Or(config.ForgetAfter, 10*time.Minute)
	config.Log = cmp.Or(config.Log, slog.New(slog.DiscardHandler))
	if config.Now == nil {
		config.Now = time.Now
	}
	return &Service{
		answers: make(chan struct{}),
		config:  config, started: config.Now(), reporters: map[string]*reporter{}, all: newHistory(),
		watchers: map[*watcher]struct{}{}, decoding: make(chan struct{}, 4),
	}
}

// Run ticks once a second until ctx ends, then sends the watchers away.
func (s *Service) Run(ctx context.Context) error {
	ticker := time.NewTicker(fineStep)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			s.closeWatchers()
			return nil
		case s.answers <- struct{}{}:
		case <-ticker.C:
			s.Tick(s.config.Now())
		}
	}
}

// Respond returns when Run's loop has answered, or when ctx ends: a watchdog calls it.
func (s *Service) Respond(ctx context.Context) {
	select {
	case <-s.answers:
	case <-ctx.Done():
	}
}

// Tick ages reporters, adds a point to each history and notifies the watchers. Run calls it.
func (s *Service) Tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.age(now)
	since := now.Sub(s.started)
	total := point{present: true}
	for _, r := range s.reporters {
		p := r.point()
		r.history.put(since, p)
		if p.present {
			total.add(p)
		}
	}
	s.all.put(since, total)
	s.publish(now)
}

// age says who is silent and forgets who was for long.
func (s *Service) age(now time.Time) {
	for key, r := range s.reporters {
		quiet := now.Sub(r.last)
		silent := s.config.SilentAfter
		if r.original {
			silent = max(silent, originalSilentAfter)
		}
		if r.state == StateLive && quiet > silent {
			r.state, r.rates, r.cpu = StateSilent, Rates{}, 0
			s.config.Log.Warn("reporter is silent", "role", r.report.Role, "id", r.report.ID, "address", r.address, "last", r.last)
		}
		if r.state != StateLive && quiet > max(s.config.ForgetAfter, silent) {
			delete(s.reporters, key)
		}
	}
}

func (r *reporter) point() point {
	if r.state != StateLive {
		return point{}
	}
	p := point{present: true}
	established := float32(r.report.Connections.Established)
	if r.report.Role == tcpscale.RoleServer {
		p.servers = established // what a server opened, a client did too: events count once
	} else {
		p.clients = established
		p.opened, p.lost = float32(r.rates.Opened), float32(r.rates.Lost)
		p.reconnected, p.failed = float32(r.rates.Reconnected), float32(r.rates.Failed)
	}
	return p
}
