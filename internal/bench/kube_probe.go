package bench

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/weir-lb/weir/internal/testbed/netlab"
)

// probeSink receives what the load balancer forwards to Pods that are simulated.
type probeSink struct {
	conn *net.UDPConn
	mu   sync.Mutex
	last uint64
	came map[uint64]chan struct{} // by number, closed when a datagram with it has come
}

func openProbeSink(host *netlab.Host) (*probeSink, error) {
	p := &probeSink{came: map[uint64]chan struct{}{}}
	if err := within(host, func() (err error) {
		p.conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: probePort})
		return err
	}); err != nil {
		return nil, err
	}
	go p.read()
	return p, nil
}

func (p *probeSink) close() { p.conn.Close() }

func (p *probeSink) read() {
	var buffer [64]byte
	for {
		n, _, err := p.conn.ReadFromUDPAddrPort(buffer[:])
		if err != nil {
			return
		}
		if n != 8 {
			continue
		}
		number := binary.BigEndian.Uint64(buffer[:])
		p.mu.Lock()
		if c := p.came[number]; c != nil {
			close(c)
			delete(p.came, number)
		}
		p.mu.Unlock()
	}
}

// expect returns a new number, and a channel that is closed when a datagram with it comes.
func (p *probeSink) expect() (number uint64, came chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	came = make(chan struct{})
	p.came[p.last] = came
	return p.last, came
}

func (p *probeSink) forget(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.came, number)
}

const (
	probeEvery = 2 * time.Millisecond
	probeLimit = 20 * time.Second
)

// probe makes the Pod of a Gateway ready, and measures until the first of the datagrams that are sent to the Gateway reaches it.
func (s *kubeScale) probe(i int) {
	var conn *net.UDPConn
	if err := s.Host(kubeClient).Do(func() (err error) {
		conn, err = net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(gatewayAddress(i), probeVIP)))
		return err
	}); err != nil {
		s.failed.Add(1)
		return
	}
	defer conn.Close()
	send := func(number uint64) { _, _ = conn.Write(binary.BigEndian.AppendUint64(nil, number)) } // lost: the next one is sent soon
	early, there := s.sink.expect()
	defer s.sink.forget(early)
	send(early)
	select {
	case <-there:
		s.stale.Add(1)
		s.changed(s.setReady(i, true))
		return
	case <-time.After(5 * probeEvery):
	}
	number, came := s.sink.expect()
	defer s.sink.forget(number)
	began, written := time.Now(), make(chan error, 1)
	go func() { written <- s.setReady(i, true) }()
	ticker := time.NewTicker(probeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-came:
			s.record(time.Since(began))
			s.changed(<-written)
			return
		case <-ticker.C:
			send(number)
		case <-s.ctx.Done():
			return
		}
		if time.Since(began) > probeLimit {
			s.lost.Add(1)
			return
		}
	}
}
