package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// responder answers each request over UDP and TCP with the request's number, its own name and the address that it sees the
// client at. So a client notices when its flow reaches another server, or gets another address translation.
type responder struct {
	name     string
	udp      *net.UDPConn
	tcp      *net.TCPListener
	received atomic.Uint64 // datagrams
	requests atomic.Uint64 // over TCP
	mu       sync.Mutex
	conns    map[net.Conn]struct{} // accepted and open; nil: closed
}

const flowNumber = 8 // bytes of a request: its number

// openResponder listens at an address of a namespace; nil: of ours. Port 0 is one that is free for both protocols.
func openResponder(host *netlab.Host, at netip.AddrPort, name string) (*responder, error) {
	r := &responder{name: name, conns: map[net.Conn]struct{}{}}
	err := within(host, func() (err error) {
		for range 20 {
			if r.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); err != nil {
				return err
			}
			if r.tcp, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(r.udp.LocalAddr().(*net.UDPAddr).AddrPort())); err == nil {
				return nil
			}
			r.udp.Close()
			if at.Port() != 0 {
				return err
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("responder at %v: %w", at, err)
	}
	_ = r.udp.SetReadBuffer(8 << 20) // the kernel may grant less
	go r.serveUDP()
	go r.serveTCP()
	return r, nil
}

func (r *responder) at() netip.AddrPort { return r.udp.LocalAddr().(*net.UDPAddr).AddrPort() }

func (r *responder) close() {
	r.udp.Close()
	r.tcp.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for conn := range r.conns { // their clients may be out of reach
		conn.Close()
	}
	r.conns = nil
}

// keep notes an open connection, until it is left; false: the responder is closed.
func (r *responder) keep(conn net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conns == nil {
		return false
	}
	r.conns[conn] = struct{}{}
	return true
}

func (r *responder) leave(conn net.Conn) {
	r.mu.Lock()
	delete(r.conns, conn)
	r.mu.Unlock()
	conn.Close()
}

// answer is the number, which names the flow that is answered.
func (r *responder) answer(number []byte, from netip.AddrPort) []byte {
	return append(number[:flowNumber:flowNumber], r.name+" "+netip.AddrPortFrom(from.Addr().Unmap(), from.Port()).String()...)
}

func (r *responder) serveUDP() {
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := r.udp.ReadFromUDPAddrPort(buffer)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // an ICMP error of a client that is gone
		}
		r.received.Add(1)
		if n >= flowNumber {
			_, _ = r.udp.WriteToUDPAddrPort(r.answer(buffer[:n], from), from) // a client that is gone sends no other request
		}
	}
}

func (r *responder) serveTCP() {
	for {
		conn, err := r.tcp.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		if !r.keep(conn) {
			conn.Close()
			return
		}
		go func() {
			defer r.leave(conn)
			from := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
			var number [flowNumber]byte
			for {
				_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute)) // a client that vanished
				if _, err := io.ReadFull(conn, number[:]); err != nil {
					return
				}
				r.requests.Add(1)
				text := r.answer(number[:], from)
				if _, err := conn.Write(append([]byte{byte(len(text))}, text...)); err != nil {
					return
				}
			}
		}()
	}
}

// clientFlow is one flow through what is measured.
type clientFlow struct {
	conn   net.Conn
	stream bool
	next   uint64
	late   uint64 // answers that came after their request had been sent again, and was answered by then
	pad    int    // bytes that follow the number of a datagram
	tail   []byte // which follow the number of a datagram
	buffer [2048]byte
}

// flowTimeout is how long an answer of a TCP connection may take, its retransmissions included; flowTry that of one datagram,
// which is sent flowTries times.
const (
	flowTimeout = 10 * time.Second
	flowTry     = 500 * time.Millisecond
	flowTries   = 8
)

// openFlow opens a flow from an address of a namespace.
func openFlow(host *netlab.Host, from netip.Addr, to netip.AddrPort, stream bool) (*clientFlow, error) {
	f := &clientFlow{stream: stream}
	err := within(host, func() (err error) {
		if stream {
			dialer := net.Dialer{Timeout: flowTimeout}
			if from.IsValid() {
				dialer.LocalAddr = &net.TCPAddr{IP: from.AsSlice()}
			}
			f.conn, err = dialer.Dial("tcp", to.String())
			return err
		}
		var local *net.UDPAddr
		if from.IsValid() {
			local = &net.UDPAddr{IP: from.AsSlice()}
		}
		f.conn, err = net.DialUDP("udp", local, net.UDPAddrFromAddrPort(to))
		return err
	})
	return f, err
}

func (f *clientFlow) close() {
	if f.conn != nil {
		f.conn.Close()
	}
}

// reset closes a TCP connection by RST, as a client that crashes.
func (f *clientFlow) reset() {
	if conn, ok := f.conn.(*net.TCPConn); ok {
		_ = conn.SetLinger(0)
	}
	f.close()
}

var errUnanswered = errors.New("no answer")

// query sends one request and returns who answered, and how many times a datagram was sent again.
func (f *clientFlow) query(ctx context.Context) (owner string, repeated int, err error) {
	f.next++
	request := make([]byte, flowNumber+f.pad)
	binary.BigEndian.PutUint64(request, f.next)
	request = append(request, f.tail...)
	if f.stream {
		owner, err = f.queryStream(request[:flowNumber])
		return owner, 0, err
	}
	for try := range flowTries {
		if ctx.Err() != nil {
			return "", try, ctx.Err()
		}
		_, _ = f.conn.Write(request) // refused: an ICMP error of the last one
		end := time.Now().Add(flowTry)
		for time.Now().Before(end) {
			_ = f.conn.SetReadDeadline(end)
			n, err := f.conn.Read(f.buffer[:])
			if err == nil && n > flowNumber && binary.BigEndian.Uint64(f.buffer[:]) == f.next {
				return string(f.buffer[flowNumber:n]), try, nil
			}
			if err == nil && n > flowNumber && binary.BigEndian.Uint64(f.buffer[:]) < f.next {
				f.late++
			}
			if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // refused: asks again when it is time to
				_ = programs.Sleep(ctx, min(flowTry/5, time.Until(end)))
			}
		}
	}
	return "", flowTries - 1, errUnanswered
}

func (f *clientFlow) queryStream(request []byte) (owner string, err error) {
	_ = f.conn.SetDeadline(time.Now().Add(flowTimeout))
	if _, err := f.conn.Write(request); err != nil {
		return "", err
	}
	if _, err := io.ReadFull(f.conn, f.buffer[:1]); err != nil {
		return "", err
	}
	text := f.buffer[:f.buffer[0]]
	if _, err := io.ReadFull(f.conn, text); err != nil {
		return "", err
	}
	if len(text) < flowNumber || binary.BigEndian.Uint64(text) != f.next {
		return "", errors.New("an answer to another request")
	}
	return string(text[flowNumber:]), nil
}

// flowCounts is what a [flowLoad] saw.
type flowCounts struct {
	Opened, Refused     uint64 // new flows whose requests were all answered, and the others
	Requested, Answered uint64 // requests
	Repeated            uint64 // datagrams sent again
	Late                uint64 // of these, those whose first one was answered, too, but late
	Established, Lost   int    // flows that stay open: how many, and how many stopped or changed their owner
	Why                 string // the first loss
}

// flowLoad keeps some flows open and opens others all the time.
type flowLoad struct {
	host     *netlab.Host
	sources  []netip.Addr // taken in turns; none: the kernel chooses
	to       netip.AddrPort
	stream   bool
	keep     int                              // flows that stay open
	interval time.Duration                    // between the requests of one flow
	opening  time.Duration                    // between new flows; 0: none
	requests int                              // of a new flow, before it is closed
	pad      int                              // more bytes in each datagram
	over     func(net.Conn) (net.Conn, error) // how datagrams are written instead; nil: as the kernel does

	mu      sync.Mutex
	counts  flowCounts
	source  int
	working sync.WaitGroup
}

// start opens the flows that stay; each is answered once when it returns.
func (l *flowLoad) start(ctx context.Context) error {
	for range l.keep {
		f, err := l.open()
		if err != nil {
			return err
		}
		owner, _, err := f.query(ctx)
		if err != nil {
			f.close()
			return fmt.Errorf("flow to %v: %w", l.to, err)
		}
		l.counts.Established++
		l.working.Go(func() { l.stay(ctx, f, owner) })
	}
	if l.opening > 0 {
		l.working.Go(func() { l.churn(ctx) })
	}
	return nil
}

// stop is called when the context of start has ended.
func (l *flowLoad) stop() flowCounts {
	l.working.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

func (l *flowLoad) open() (*clientFlow, error) {
	var from netip.Addr
	l.mu.Lock()
	if len(l.sources) > 0 {
		from = l.sources[l.source%len(l.sources)]
		l.source++
	}
	l.mu.Unlock()
	f, err := openFlow(l.host, from, l.to, l.stream)
	f.pad = l.pad
	if err == nil && l.over != nil {
		f.conn, err = l.over(f.conn)
	}
	return f, err
}

// count notes one request.
func (l *flowLoad) count(repeated int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.Requested++
	l.counts.Repeated += uint64(repeated)
	if err == nil {
		l.counts.Answered++
	}
}

func (l *flowLoad) stay(ctx context.Context, f *clientFlow, owner string) {
	defer f.close()
	for programs.Sleep(ctx, l.interval) == nil {
		now, repeated, err := f.query(ctx)
		if err != nil && ctx.Err() != nil {
			return
		}
		l.count(repeated, err)
		if f.late > 0 {
			l.mu.Lock()
			l.counts.Late += f.late
			l.mu.Unlock()
			f.late = 0
		}
		if err == nil && now == owner {
			continue
		}
		l.mu.Lock()
		if l.counts.Lost++; l.counts.Why == "" {
			l.counts.Why = fmt.Sprintf("%s, then %s", owner, now)
			if err != nil {
				l.counts.Why = fmt.Sprintf("%s: %v", owner, err)
			}
		}
		l.mu.Unlock()
		if err != nil && l.stream {
			return
		}
		if err == nil {
			owner = now
		}
	}
}

// churn opens flows at their intended times, also when earlier ones still wait for an answer. One that was opened asks all that
// it has to query.
func (l *flowLoad) churn(opening context.Context) {
	next, ctx := time.Now(), context.WithoutCancel(opening)
	for number := 0; ; number++ {
		next = next.Add(l.opening)
		if programs.Sleep(opening, time.Until(next)) != nil {
			return
		}
		l.working.Go(func() {
			f, err := l.open()
			for i := 0; err == nil && i < l.requests; i++ {
				if i > 0 {
					_ = programs.Sleep(ctx, l.interval) // it cannot be cancelled
				}
				var repeated int
				_, repeated, err = f.query(ctx)
				l.count(repeated, err)
			}
			if number%2 == 0 {
				f.close()
			} else {
				f.reset()
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if err == nil {
				l.counts.Opened++
			} else {
				l.counts.Refused++
			}
		})
	}
}
