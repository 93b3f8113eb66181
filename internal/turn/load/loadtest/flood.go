// Package loadtest floods a TURN server with requests, for tests.
package loadtest

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/pion/stun/v4"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/testbed/pace"
	"github.com/weir-lb/weir/internal/turn/requests"
	"github.com/weir-lb/weir/internal/udpio"
)

// Flood is unauthenticated Allocate requests from many source ports.
type Flood struct {
	Server  netip.AddrPort
	Count   int          // requests in all, each from a fresh socket
	Sources []netip.Addr // used in rotation; default the kernel's choice. A port may be reused after some ten thousand requests
	Rate    float64      // requests per second; 0: as fast as one thread can
}

// Flooded is how the server responded.
type Flooded struct {
	Sent          uint64
	SentBytes     uint64
	Refused       uint64 // by our kernel
	Answered      uint64
	AnsweredBytes uint64
	Codes         map[int]uint64 // STUN error codes of the answers; 0: a success
	Largest       float64        // size of the longest answer divided by that of the request
	Elapsed       time.Duration
}

const (
	// catchUp is how much of a delay the flood compensates for.
	catchUp   = 10 * time.Millisecond
	floodOpen = 512 // concurrent sockets
	// floodAnswer is how long a socket waits for its answer after the last request of its wave was sent.
	floodAnswer = 5 * time.Millisecond
)

// Run sends requests until Count were sent or ctx ends. Sockets are opened in waves: each sends one request and is
// closed after its answer arrived or a short time passed, so Answered may miss late answers.
func (f Flood) Run(ctx context.Context) (Flooded, error) {
	got := Flooded{Codes: map[int]uint64{}}
	begin, pacer := time.Now(), pace.Pacer{Rate: f.Rate, Debt: catchUp}
	sources := f.Sources
	if len(sources) == 0 {
		sources = []netip.Addr{{}}
	}
	wave := make([]udpio.Socket, 0, floodOpen)
	defer func() { closeAll(wave) }()
	for n := 0; n < f.Count && ctx.Err() == nil; {
		if _, wait := pacer.Take(time.Since(begin), 1, 1); wait > 0 {
			pause := unix.NsecToTimespec(int64(min(wait, catchUp)))
			_ = unix.Nanosleep(&pause, nil)
			continue
		}
		socket, err := udpio.DialFrom(sources[n%len(sources)], f.Server, true)
		if err != nil {
			return got, fmt.Errorf("flood %v: socket %d: %w", f.Server, n, err)
		}
		wave = append(wave, socket)
		n++
		got.send(&wave[len(wave)-1])
		if len(wave) == cap(wave) || n == f.Count {
			got.listen(wave)
			closeAll(wave)
			wave = wave[:0]
		}
	}
	got.Elapsed = time.Since(begin)
	return got, ctx.Err()
}

func closeAll(wave []udpio.Socket) {
	for i := range wave {
		wave[i].Close()
	}
}

func (g *Flooded) send(s *udpio.Socket) {
	m := stun.New()
	_ = requests.Request{Method: stun.MethodAllocate}.Build(m, nil) // without an address it cannot fail
	if s.Send(m.Raw) != nil {
		g.Refused++
		return
	}
	g.Sent++
	g.SentBytes += uint64(len(m.Raw))
}

const floodRequest = 28 // bytes: header and REQUESTED-TRANSPORT

// listen collects the answers to a wave.
func (g *Flooded) listen(wave []udpio.Socket) {
	buffer := make([]byte, 2048)
	pending := make([]*udpio.Socket, 0, len(wave))
	for i := range wave {
		pending = append(pending, &wave[i])
	}
	for end := time.Now().Add(floodAnswer); len(pending) > 0; {
		late := time.Now().After(end)
		left := pending[:0]
		for _, s := range pending {
			n, err := s.Receive(buffer)
			switch {
			case err == nil:
				g.answer(buffer[:n])
			case err == unix.EAGAIN: //nolint:errorlint // a bare errno
				left = append(left, s)
			}
		}
		if pending = left; late {
			return
		}
		pause := unix.NsecToTimespec(int64(time.Millisecond))
		_ = unix.Nanosleep(&pause, nil)
	}
}

func (g *Flooded) answer(b []byte) {
	g.Answered++
	g.AnsweredBytes += uint64(len(b))
	g.Largest = max(g.Largest, float64(len(b))/floodRequest)
	m := &stun.Message{Raw: append([]byte(nil), b...)}
	var code stun.ErrorCodeAttribute
	switch {
	case len(b) < 20 || binary.BigEndian.Uint16(b)>>14 != 0 || m.Decode() != nil:
		g.Codes[-1]++ // not a STUN message
	case m.Type.Class == stun.ClassSuccessResponse:
		g.Codes[0]++
	case code.GetFrom(m) != nil:
		g.Codes[-1]++
	default:
		g.Codes[int(code.Code)]++
	}
}
