package turn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pion/stun/v4"
)

// What the flows of a test log in with.
const (
	flowRealm    = "weir"
	flowUser     = "user1"
	flowPassword = "passwd1"
	flowChannel  = 0x4000
	flowBytes    = 160 // of a datagram's payload, as a voice call's
)

// turnFlow is a client with one allocation and one channel, and the peer at its other end. Each side sends numbered
// datagrams to the other.
type turnFlow struct {
	client *net.UDPConn // connected to the gateway
	peer   *net.UDPConn
	relay  *net.UDPAddr
	nonce  stun.Nonce
	answer chan *stun.Message

	marker   uint64 // of this flow's datagrams: other tests' strays do not count
	up, down tally  // client to peer, peer to client
	refused  atomic.Int64
}

// tally is one direction. Its receiver adds, anybody reads.
type tally struct {
	sent    atomic.Int64
	mu      sync.Mutex
	seen    map[int64]bool
	highest int64
	last    time.Time
	longest time.Duration // between two datagrams
}

func (y *tally) received(number int64, now time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if !y.last.IsZero() {
		y.longest = max(y.longest, now.Sub(y.last))
	}
	y.last = now
	y.seen[number] = true
	y.highest = max(y.highest, number)
}

func (y *tally) reached() int64 {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.highest
}

// lost counts what is missing before the highest number that came.
func (y *tally) lost() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return int(y.highest) - len(y.seen)
}

// turnFlows are many of them at one gateway.
type turnFlows struct {
	t     *testing.T
	flows []*turnFlow
	stop  chan struct{}
	ended sync.WaitGroup
}

// newTurnFlows makes n allocations at server and begins to send every interval, both ways, until the test ends.
func newTurnFlows(t *testing.T, server string, n int, interval time.Duration) *turnFlows {
	t.Helper()
	fs := &turnFlows{t: t, stop: make(chan struct{})}
	for range n {
		fs.flows = append(fs.flows, newTurnFlow(t, server))
	}
	fs.ended.Go(func() { fs.pump(interval) })
	t.Cleanup(func() {
		close(fs.stop)
		for _, f := range fs.flows {
			f.client.Close()
			f.peer.Close()
		}
		fs.ended.Wait()
	})
	for _, f := range fs.flows {
		fs.ended.Go(f.receiveClient)
		fs.ended.Go(f.receivePeer)
	}
	fs.each("open", (*turnFlow).open)
	return fs
}

// each does something with every flow, a few at a time.
func (fs *turnFlows) each(what string, do func(f *turnFlow) error) {
	fs.t.Helper()
	var group sync.WaitGroup
	slots, failed := make(chan struct{}, 32), make([]error, len(fs.flows))
	for i, f := range fs.flows {
		slots <- struct{}{}
		group.Go(func() {
			failed[i] = do(f)
			<-slots
		})
	}
	group.Wait()
	if err := errors.Join(failed...); err != nil {
		fs.t.Fatalf("%s: %v", what, err)
	}
}

func newTurnFlow(t *testing.T, server string) *turnFlow {
	t.Helper()
	client, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(server)))
	if err != nil {
		t.Fatal(err)
	}
	peer, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	f := &turnFlow{marker: rand.Uint64(), client: client, peer: peer, answer: make(chan *stun.Message, 16)}
	f.up.seen, f.down.seen = map[int64]bool{}, map[int64]bool{}
	return f
}

// open allocates and binds the channel. Until then nothing is sent.
func (f *turnFlow) open() error {
	answer, err := f.request(allocateRequest())
	if err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	var relay stun.XORMappedAddress
	if err := relay.GetFromAs(answer, stun.AttrXORRelayedAddress); err != nil {
		return fmt.Errorf("allocate: %w", err)
	}
	number := make([]byte, 4)
	binary.BigEndian.PutUint16(number, flowChannel)
	if _, err := f.request(stun.NewType(stun.MethodChannelBind, stun.ClassRequest), stun.RawAttribute{Type: stun.AttrChannelNumber, Value: number}, f.peerAddress()); err != nil {
		return fmt.Errorf("bind a channel: %w", err)
	}
	f.relay = &net.UDPAddr{IP: relay.IP, Port: relay.Port}
	f.up.sent.Store(1)
	return nil
}

// allocateRequest is an Allocate request for UDP.
func allocateRequest() (stun.MessageType, stun.Setter) {
	return stun.NewType(stun.MethodAllocate, stun.ClassRequest), stun.RawAttribute{Type: stun.AttrRequestedTransport, Value: []byte{17, 0, 0, 0}}
}

func (f *turnFlow) peerAddress() stun.Setter {
	at := f.peer.LocalAddr().(*net.UDPAddr)
	return setter(func(m *stun.Message) error {
		return stun.XORMappedAddress{IP: at.IP, Port: at.Port}.AddToAs(m, stun.AttrXORPeerAddress)
	})
}

type setter func(*stun.Message) error

func (s setter) AddTo(m *stun.Message) error { return s(m) }

// refresh requests a lifetime in seconds; 0 ends the allocation.
func (f *turnFlow) refresh(seconds uint32) error {
	_, err := f.request(stun.NewType(stun.MethodRefresh, stun.ClassRequest), stun.RawAttribute{Type: stun.AttrLifetime, Value: binary.BigEndian.AppendUint32(nil, seconds)})
	return err
}

// request sends a request, again until it is answered, and follows a 401 or 438 once. The error names another code.
func (f *turnFlow) request(kind stun.MessageType, attributes ...stun.Setter) (*stun.Message, error) {
	for range 3 {
		setters := append([]stun.Setter{stun.TransactionID, kind}, attributes...)
		if len(f.nonce) > 0 {
			setters = append(setters, stun.NewUsername(flowUser), stun.NewRealm(flowRealm), f.nonce, stun.NewLongTermIntegrity(flowUser, flowRealm, flowPassword))
		}
		request, err := stun.Build(setters...)
		if err != nil {
			return nil, err
		}
		answer, err := f.exchange(request)
		if err != nil || answer.Type.Class == stun.ClassSuccessResponse {
			return answer, err
		}
		var code stun.ErrorCodeAttribute
		if err := code.GetFrom(answer); err != nil {
			return nil, err
		}
		if code.Code != stun.CodeUnauthorized && code.Code != stun.CodeStaleNonce {
			return answer, fmt.Errorf("error %d %s", code.Code, code.Reason)
		}
		if err := f.nonce.GetFrom(answer); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the credentials are not taken")
}

func (f *turnFlow) exchange(request *stun.Message) (*stun.Message, error) {
	deadline := time.After(time.Minute)
	for {
		_, _ = f.client.Write(request.Raw) // refused while no program is there
		again := time.After(500 * time.Millisecond)
	wait:
		for {
			select {
			case answer := <-f.answer:
				if answer.TransactionID == request.TransactionID {
					return answer, nil
				}
			case <-again:
				break wait
			case <-deadline:
				return nil, errors.New("no answer")
			}
		}
	}
}

func (f *turnFlow) receiveClient() {
	buffer := make([]byte, 2000)
	for {
		n, err := f.client.Read(buffer)
		if errors.Is(err, syscall.ECONNREFUSED) {
			f.refused.Add(1)
			continue
		}
		if err != nil {
			return
		}
		if n >= 12 && binary.BigEndian.Uint16(buffer) == flowChannel {
			f.arrived(&f.down, buffer[4:n])
			continue
		}
		m := &stun.Message{Raw: slices.Clone(buffer[:n])}
		if m.Decode() == nil {
			select {
			case f.answer <- m:
			default:
			}
		}
	}
}

func (f *turnFlow) receivePeer() {
	buffer := make([]byte, 2000)
	for {
		n, err := f.peer.Read(buffer)
		if err != nil {
			return
		}
		f.arrived(&f.up, buffer[:n])
	}
}

func (f *turnFlow) arrived(y *tally, data []byte) {
	if len(data) == flowBytes && binary.BigEndian.Uint64(data) == f.marker {
		y.received(int64(binary.BigEndian.Uint64(data[8:])), time.Now())
	}
}

// pump sends one datagram of each flow each way, again and again.
func (fs *turnFlows) pump(interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-fs.stop:
			return
		case <-tick.C:
		}
		for _, f := range fs.flows {
			if f.up.sent.Load() == 0 {
				continue // not open yet
			}
			f.send()
		}
	}
}

func (f *turnFlow) send() {
	up, down := f.up.sent.Load(), f.down.sent.Add(1)
	f.up.sent.Store(up + 1)
	data := make([]byte, 4+flowBytes)
	binary.BigEndian.PutUint16(data, flowChannel)
	binary.BigEndian.PutUint16(data[2:], flowBytes)
	binary.BigEndian.PutUint64(data[4:], f.marker)
	binary.BigEndian.PutUint64(data[12:], uint64(up))
	if _, err := f.client.Write(data); errors.Is(err, syscall.ECONNREFUSED) {
		f.refused.Add(1)
	}
	binary.BigEndian.PutUint64(data[12:], uint64(down))
	_, _ = f.peer.WriteToUDP(data[4:], f.relay)
}

// goOn waits until every flow got, both ways, datagrams that were sent after this call.
func (fs *turnFlows) goOn() {
	fs.t.Helper()
	type mark struct{ up, down int64 }
	marks := make([]mark, len(fs.flows))
	for i, f := range fs.flows {
		marks[i] = mark{f.up.sent.Load() + 1, f.down.sent.Load() + 1}
	}
	deadline := time.Now().Add(2 * time.Minute)
	for i, f := range fs.flows {
		for f.up.reached() < marks[i].up || f.down.reached() < marks[i].down {
			if time.Now().After(deadline) {
				fs.t.Fatalf("flow %d of %d does not go on: up %d of %d, down %d of %d; refused %d times", i, len(fs.flows),
					f.up.reached(), marks[i].up, f.down.reached(), marks[i].down, f.refused.Load())
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// refresh refreshes every allocation: none may be gone (437).
func (fs *turnFlows) refresh() {
	fs.t.Helper()
	fs.each("refresh", func(f *turnFlow) error { return f.refresh(600) })
}

// release ends every allocation, in parallel.
func (fs *turnFlows) release() {
	var group sync.WaitGroup
	for _, f := range fs.flows {
		group.Go(func() { _ = f.refresh(0) })
	}
	group.Wait()
}

// refused counts how often the gateway's port was closed when a client sent.
func (fs *turnFlows) refused() (n int64) {
	for _, f := range fs.flows {
		n += f.refused.Load()
	}
	return n
}

// gap is what an event cost.
type gap struct {
	lost, sent   int           // datagrams in all
	flows, worst int           // that lost any; the most that one direction of a flow lost
	pause        time.Duration // the longest between two datagrams of a direction
}

func (g gap) String() string {
	return fmt.Sprintf("%d of %d packets lost, by %d flows, at most %d of one flow and way; longest pause %v", g.lost, g.sent, g.flows, g.worst, g.pause.Round(time.Millisecond))
}

// gap takes the measure of what happened since the last call.
func (fs *turnFlows) gap() (g gap) {
	for _, f := range fs.flows {
		lost := 0
		for _, y := range []*tally{&f.up, &f.down} {
			n := y.lost()
			lost += n
			g.worst = max(g.worst, n)
			y.mu.Lock()
			g.sent += int(y.highest)
			g.pause = max(g.pause, y.longest)
			y.longest = 0
			y.mu.Unlock()
		}
		g.lost += lost
		if lost > 0 {
			g.flows++
		}
	}
	return g
}
