package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// failoverLoad is many flows, each of which sends a request now and then, at even times. It notes when requests were sent that were
// not answered, and which flows reach another backend, or the same one from another address.
type failoverLoad struct {
	config  *FailoverConfig
	cid     bool
	flows   []*failoverFlow
	turns   atomic.Int64 // how many times a flow had its turn to send
	sending sync.WaitGroup
	reading sync.WaitGroup
}

// failoverFlow is one flow. mu guards what its sender and its reader share.
type failoverFlow struct {
	*clientFlow
	owner string // who answered first, and the address that it saw

	mu       sync.Mutex
	sent     time.Time     // of the newest request
	answered bool          // it has been
	broken   string        // why the flow is lost; empty: it is not
	lost     []time.Time   // when datagrams were sent that were not answered
	wait     time.Duration // the longest for an answer
	marked   bool          // waits and losses count
}

// Of a DTLS 1.2 record with a connection id (RFC 9146 section 4), the first eight bytes are type, version, epoch and the first three of the
// sequence number: the request's number is those.
const failoverRecord = uint64(25)<<56 | 0xfefd<<40 | 1<<24

// open opens the flows, each of which is answered once.
func (l *failoverLoad) open(ctx context.Context, client *netlab.Host) error {
	const openers = 16
	l.flows = make([]*failoverFlow, l.config.Flows)
	var failed error
	var once sync.Once
	var working sync.WaitGroup
	for opener := range openers {
		working.Go(func() {
			for i := opener; i < len(l.flows) && ctx.Err() == nil; i += openers {
				f, err := l.openOne(ctx, client, i)
				if l.flows[i] = f; err != nil {
					once.Do(func() { failed = fmt.Errorf("flow %d of %d: %w", i+1, len(l.flows), err) })
					return
				}
			}
		})
	}
	working.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return failed
}

func (l *failoverLoad) openOne(ctx context.Context, client *netlab.Host, i int) (*failoverFlow, error) {
	inner, err := openFlow(client, netip.Addr{}, failoverVIP(), i%2 == 0)
	f := &failoverFlow{clientFlow: inner}
	if err != nil {
		return f, err
	}
	if l.cid && !f.stream {
		f.next = failoverRecord
		f.tail = []byte{0, 0, 0, byte(i/2%failoverBackends + 1), byte(i >> 16), byte(i >> 8), byte(i), 0, 16, 24: 0}
	}
	f.owner, _, err = f.query(ctx)
	f.answered = true
	return f, err
}

// start lets the flows send, in turn and evenly, until the function that it returns is called.
func (l *failoverLoad) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	for _, f := range l.flows {
		_ = f.conn.SetDeadline(time.Time{})
		l.reading.Go(f.read)
	}
	l.sending.Go(func() {
		began := time.Now()
		for i := 0; ; i++ {
			due := began.Add(time.Duration(float64(i) / l.config.Rate * float64(time.Second)))
			if programs.Sleep(ctx, time.Until(due)) != nil {
				return
			}
			l.flows[i%len(l.flows)].send()
			l.turns.Add(1)
		}
	})
	return func() {
		cancel()
		l.sending.Wait()
	}
}

// cycle waits until each flow has had its turn to send once more.
func (l *failoverLoad) cycle(ctx context.Context) error {
	end := l.turns.Load() + int64(len(l.flows))
	for l.turns.Load() < end {
		if err := programs.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// send sends the next request. A datagram that was not answered until then is lost; a TCP connection goes on to wait.
func (f *failoverFlow) send() {
	f.mu.Lock()
	if f.broken != "" || f.stream && !f.answered {
		f.mu.Unlock()
		return
	}
	f.loseLocked()
	f.next++
	f.sent, f.answered = time.Now(), false
	request := append(binary.BigEndian.AppendUint64(nil, f.next), f.tail...)
	f.mu.Unlock()
	if _, err := f.conn.Write(request); err != nil && f.stream { // of UDP, it is an ICMP error of the last one
		f.fail(err.Error())
	}
}

// loseLocked notes a datagram that has not been answered.
func (f *failoverFlow) loseLocked() {
	if !f.answered && !f.stream {
		f.lost = append(f.lost, f.sent)
	}
}

func (f *failoverFlow) fail(why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken == "" {
		f.broken = why
	}
}

// read takes the answers until the flow is closed.
func (f *failoverFlow) read() {
	for {
		text, err := f.readOne()
		if err != nil {
			if f.stream || errors.Is(err, net.ErrClosed) {
				f.fail(err.Error())
				return
			}
			continue // an ICMP error
		}
		if len(text) >= flowNumber {
			f.take(binary.BigEndian.Uint64(text), string(text[flowNumber:]))
		}
	}
}

// readOne reads one answer: of UDP a datagram.
func (f *failoverFlow) readOne() ([]byte, error) {
	if !f.stream {
		n, err := f.conn.Read(f.buffer[:])
		return f.buffer[:n], err
	}
	if _, err := io.ReadFull(f.conn, f.buffer[:1]); err != nil {
		return nil, err
	}
	text := f.buffer[1:][:f.buffer[0]]
	_, err := io.ReadFull(f.conn, text)
	return text, err
}

// take notes an answer.
func (f *failoverFlow) take(number uint64, owner string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if number != f.next || f.answered { // late: it counts as lost
		return
	}
	f.answered = true
	if f.marked {
		f.wait = max(f.wait, time.Since(f.sent))
	}
	if owner != f.owner && f.broken == "" {
		f.broken = fmt.Sprintf("%s, then %s", f.owner, owner)
	}
}

// mark begins the measured phase. It returns how many datagrams and flows were lost before.
func (l *failoverLoad) mark() (datagrams, flows int) {
	for _, f := range l.flows {
		f.mu.Lock()
		datagrams += len(f.lost)
		if f.broken != "" {
			flows++
		}
		f.lost, f.marked = nil, true
		f.mu.Unlock()
	}
	return datagrams, flows
}

// rest waits for the last answers. Datagrams without one are sent again.
func (l *failoverLoad) rest(ctx context.Context) error {
	const again = 300 * time.Millisecond
	for end := time.Now().Add(failoverWait + 10*l.config.BFD); time.Now().Before(end); {
		waiting := 0
		for _, f := range l.flows {
			if f.waits(again) {
				waiting++
			}
		}
		if waiting == 0 {
			return nil
		}
		if err := programs.Sleep(ctx, again/10); err != nil {
			return err
		}
	}
	return nil // whose answers did not come is judged
}

// waits reports whether an answer is missing, and sends a datagram again after a time.
func (f *failoverFlow) waits(again time.Duration) bool {
	f.mu.Lock()
	waits := !f.answered && f.broken == ""
	resend := waits && !f.stream && time.Since(f.sent) > again
	f.mu.Unlock()
	if resend {
		f.send()
	}
	return waits
}

// failoverCounts is what became of the flows of one protocol.
type failoverCounts struct {
	flows, lost int
	datagrams   int           // lost ones of flows that live
	last        time.Duration // from the power-off to the last of these was sent
	wait        time.Duration // the longest of a flow that lives
	times       []float64     // when each lost datagram was sent, seconds after the power-off
	why         string        // of the first loss
}

// failoverOutcome is what became of all.
type failoverOutcome struct{ stream, datagram failoverCounts }

// judge says what became of the flows since the power-off. A flow is lost whose connection broke, that reached another backend or had
// another address there, or whose newest request was not answered.
func (l *failoverLoad) judge(off time.Time) (o failoverOutcome) {
	for _, f := range l.flows {
		f.mu.Lock()
		c := &o.datagram
		if f.stream {
			c = &o.stream
		}
		if !f.answered && f.broken == "" {
			f.broken = f.owner + ": no answer"
		}
		c.flows++
		if f.broken != "" {
			if c.lost++; c.why == "" {
				c.why = f.broken
			}
		} else {
			c.datagrams += len(f.lost)
			c.wait = max(c.wait, f.wait)
			for _, at := range f.lost {
				c.last = max(c.last, at.Sub(off))
				c.times = append(c.times, at.Sub(off).Seconds())
			}
		}
		f.mu.Unlock()
	}
	return o
}

// close ends the flows, by RST: their ports are free again at once.
func (l *failoverLoad) close() {
	for _, f := range l.flows {
		if f != nil {
			f.reset()
		}
	}
	l.reading.Wait()
}
