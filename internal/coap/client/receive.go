package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// ReceiveConfig describes a receive test. The zero value of a field means its default.
type ReceiveConfig struct {
	URI      string // of the resource, such as coap://host/requests
	Security Security
	Interval time.Duration // between two requests; default 1 s
	Timeout  time.Duration // for a response; default 2 s. Later ones count as lost
	Count    int           // of requests; 0: until ctx ends
	CBOR     bool          // request the history in CBOR instead of JSON: an answer reaches back further
	// Under is that of DialConfig.
	Under func(RawLink) RawLink
}

// Validate refuses what cannot be.
func (c *ReceiveConfig) Validate() error {
	target, err := ParseTarget(c.URI)
	switch {
	case err != nil:
		return err
	case c.Interval < 0 || c.Timeout < 0 || c.Count < 0:
		return errors.New("interval, timeout and count must not be negative")
	case c.Interval > 0 && c.Interval < time.Millisecond:
		return fmt.Errorf("interval: %v is less than 1ms", c.Interval)
	case c.interval()*maxOpen/2 < c.timeout():
		return fmt.Errorf("timeout: %v is too long for an interval of %v: more than %d requests would be under way", c.timeout(), c.interval(), maxOpen/2)
	case len(target.Path) == 0:
		return fmt.Errorf("URI %q: no path; write for example %s/requests", c.URI, c.URI)
	}
	return nil
}

func (c *ReceiveConfig) interval() time.Duration {
	if c.Interval == 0 {
		return time.Second
	}
	return c.Interval
}

func (c *ReceiveConfig) timeout() time.Duration {
	if c.Timeout == 0 {
		return 2 * time.Second
	}
	return c.Timeout
}

// receiver is one run of a receive test.
type receiver struct {
	cfg     ReceiveConfig
	mu      sync.Mutex
	ledger  *Ledger
	conn    *Conn
	newest  int64 // number in the newest id
	refused error // the first answer that is none of a receive test
	running sync.WaitGroup
}

// Receive sends non-confirmable requests to a server that remembers the newest of them, each once, until ctx ends or cfg.Count are
// done, and enters in ledger which were lost, on the way there or on the way back. changed is called with the ledger after each
// request, never twice at a time, and must not keep it. A session or connection that ends is made again. Over TCP requests and responses
// are lost with their connection, or by coming too late. It returns an error where the first
// connection cannot be made or where the server is none for receive tests.
func Receive(ctx context.Context, cfg ReceiveConfig, ledger *Ledger, changed func(*Ledger)) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	r := &receiver{cfg: cfg, ledger: ledger}
	if err := r.dial(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ticker := time.NewTicker(cfg.interval())
	defer ticker.Stop()
	for n := 0; (cfg.Count == 0 || n < cfg.Count) && ctx.Err() == nil && r.trouble() == nil; n++ {
		at := time.Now()
		id := r.id(at)
		r.running.Go(func() {
			r.one(context.WithoutCancel(ctx), id, at)
			r.mu.Lock()
			defer r.mu.Unlock()
			changed(r.ledger)
		})
		if cfg.Count != 0 && n+1 == cfg.Count {
			break
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	r.running.Wait()
	r.last(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	changed(r.ledger)
	if r.conn != nil {
		r.conn.Close() //nolint:errcheck // nothing is pending
	}
	return r.refused
}

// id names a request by its time, in the order of sending.
func (r *receiver) id(at time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newest = max(r.newest+1, at.UnixMilli())
	return fmt.Sprintf("RID%d", r.newest)
}

// last requests the history until the fate of the last requests is known, a few times.
func (r *receiver) last(ctx context.Context) {
	for n := range 20 {
		r.mu.Lock()
		open := len(r.ledger.Open)
		r.mu.Unlock()
		if open == 0 || r.trouble() != nil || ctx.Err() != nil && n > 3 {
			return
		}
		now := time.Now()
		r.one(context.WithoutCancel(ctx), r.id(now), now)
	}
}

func (r *receiver) trouble() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

// dial makes the connection again.
func (r *receiver) dial(ctx context.Context) error {
	conn, err := Dial(ctx, r.cfg.URI, DialConfig{Security: r.cfg.Security, Timeout: max(r.cfg.timeout(), 10*time.Second), Unpaced: true, Under: r.cfg.Under})
	if err != nil {
		return err
	}
	conn.cfg.Timeout = r.cfg.timeout() // of exchanges
	r.conn = conn
	return nil
}

// connection returns the connection, made again if it has ended; nil: there is none now.
func (r *receiver) connection(ctx context.Context) *Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn != nil && r.conn.ended() {
		r.conn.Close() //nolint:errcheck // it has ended
		r.conn = nil
	}
	if r.conn == nil && r.dial(ctx) != nil {
		return nil
	}
	return r.conn
}

// one sends one request and enters its end.
func (r *receiver) one(ctx context.Context, id string, at time.Time) {
	conn := r.connection(ctx)
	if conn == nil {
		return
	}
	r.mu.Lock()
	r.ledger.Send(id, at)
	query := slices.Concat([]string{"dev=" + r.ledger.Device, "rid=" + id, "ep", fmt.Sprintf("rlen=%d", historyLength)}, conn.target.Query)
	r.mu.Unlock()
	format := message.JSON
	if r.cfg.CBOR {
		format = message.CBOR
	}
	x, err := conn.Do(ctx, &Request{
		Method: message.POST, NON: true, Query: query, Options: []Option{UintOption(message.Accept, uint32(format))},
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.ledger.Fail(id)
		return
	}
	var m message.Message
	if err = message.Parse(x.Response, &m); err == nil && m.Code.Class() != 2 {
		err = fmt.Errorf("%s: response %s %s: it is no resource for receive tests", r.cfg.URI, m.Code, m.Code.Name())
	}
	var h *History
	if err == nil {
		h, err = ParseHistory(&m)
	}
	if err != nil {
		r.ledger.Fail(id)
		r.refused = err
		return
	}
	r.ledger.Answer(id, x.RTT, h)
}

// ended reports whether the connection carries nothing any more.
func (c *Conn) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}
