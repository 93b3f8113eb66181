package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/weir-lb/weir/internal/testbed/pace"
	"github.com/weir-lb/weir/internal/udpio"
)

// Datagrams is UDP traffic of one sender thread: datagrams of one size, from one socket for each source, in batches.
type Datagrams struct {
	Sources []netip.Addr
	To      netip.AddrPort
	Size    int // bytes of payload, 8 to udpio.MaxDatagram
	Rate    int // a second; 0: as fast as the thread can
	// Duration of sending.
	Duration time.Duration
}

// DatagramsSent is what a sender did.
type DatagramsSent struct {
	Sent    uint64  `json:"sent"`
	Refused uint64  `json:"refused"` // by the sender's kernel: a full device queue for instance
	Elapsed float64 `json:"elapsed_s"`
}

// DatagramsReceived is what a sink saw.
type DatagramsReceived struct {
	Received   uint64 `json:"received"`
	WrongSize  uint64 `json:"wrong_size"`
	Overflowed uint64 `json:"overflowed"` // arrived, and found the sink's buffer full
}

const (
	sendBatch = 64
	// sendBurst bounds what a sender that was held up makes up for: more would test the queue and not the rate.
	sendBurst = 10 * time.Millisecond
	sendPause = 200 * time.Microsecond
	sinkRoom  = 32 << 20
)

// Validate says what cannot be sent.
func (d *Datagrams) Validate() error {
	if len(d.Sources) == 0 || d.Size < 8 || d.Size > udpio.MaxDatagram || d.Rate < 0 || d.Duration <= 0 {
		return fmt.Errorf("datagrams of %d bytes from %d sources, %d a second for %v: want 8 to %d bytes, a source, a time", d.Size, len(d.Sources), d.Rate, d.Duration, udpio.MaxDatagram)
	}
	return nil
}

// Send sends until the time is over or ctx ends.
func (d *Datagrams) Send(ctx context.Context) (DatagramsSent, error) {
	var done DatagramsSent
	if err := d.Validate(); err != nil {
		return done, err
	}
	conns, closeAll, err := listenAll(d.Sources)
	if err != nil {
		return done, err
	}
	defer closeAll()
	messages := udpio.NewMessages(sendBatch, d.Size)
	for i := range messages {
		messages[i].N, messages[i].Addr = d.Size, d.To
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start, pacer := time.Now(), pace.Pacer{Rate: float64(d.Rate), Debt: sendBurst}
	for i := 0; ctx.Err() == nil; i++ {
		elapsed := time.Since(start)
		if done.Elapsed = elapsed.Seconds(); elapsed >= d.Duration {
			break
		}
		due, _ := pacer.Take(elapsed, 1, sendBatch)
		if due == 0 {
			time.Sleep(sendPause)
			continue
		}
		n := conns[i%len(conns)].WriteAll(messages[:due])
		done.Sent += uint64(n)
		done.Refused += uint64(due - n)
	}
	return done, ctx.Err()
}

// listenAll opens a socket at each address, any port.
func listenAll(sources []netip.Addr) (conns []*udpio.Conn, closeAll func(), err error) {
	var groups []*udpio.Group
	closeAll = func() {
		for _, group := range groups {
			_ = group.Close() // nothing depends on it
		}
	}
	for _, source := range sources {
		group, err := udpio.Listen(udpio.Config{Addr: netip.AddrPortFrom(source, 0), Batch: sendBatch, NoSegment: true})
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("send from %v: %w", source, err)
		}
		groups, conns = append(groups, group), append(conns, group.Conn(0))
	}
	return conns, closeAll, nil
}

// Sink counts datagrams of a size at an address until ctx ends and none came for a while. ready is called once it listens.
func Sink(ctx context.Context, at netip.AddrPort, size int, ready func()) (DatagramsReceived, error) {
	const (
		batch   = 256
		silence = 100 * time.Millisecond
	)
	var got DatagramsReceived
	group, err := udpio.Listen(udpio.Config{Addr: at, Batch: batch, ReadBuffer: sinkRoom})
	if err != nil {
		return got, fmt.Errorf("receive at %v: %w", at, err)
	}
	defer group.Close()
	conn, messages := group.Conn(0), udpio.NewMessages(batch, size+1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ready()
	for {
		n, err := conn.ReadBatch(messages, silence)
		if err != nil {
			return got, fmt.Errorf("receive at %v: %w", at, err)
		}
		for i := range messages[:n] {
			if messages[i].N == size {
				got.Received++
			} else {
				got.WrongSize++
			}
		}
		if n == 0 && ctx.Err() != nil {
			got.Overflowed = conn.Overflowed()
			return got, nil
		}
	}
}

// RoundTrips is what a ping-pong found.
type RoundTrips struct {
	Count   int     `json:"count"`
	Lost    int     `json:"lost"`
	Best    float64 `json:"best_us"`
	Median  float64 `json:"median_us"`
	Ninety9 float64 `json:"p99_us"`
}

const maxRoundTrips = 1 << 22

// PingPong sends one datagram at a time to an echo, from each source in turn, and waits for the answer. With count it ends when
// each source had that many answers, and fails when that takes longer than the duration; without, it ends with the duration.
func PingPong(ctx context.Context, sources []netip.Addr, to netip.AddrPort, count int, duration time.Duration) (RoundTrips, error) {
	const size, timeout = 64, 100 * time.Millisecond
	var result RoundTrips
	conns, closeAll, err := listenAll(sources)
	if err != nil {
		return result, err
	}
	defer closeAll()
	out, in := udpio.NewMessages(1, size), udpio.NewMessages(1, size)
	out[0].N, out[0].Addr = size, to
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took []time.Duration
	start := time.Now()
	for number := uint64(1); ctx.Err() == nil && (count == 0 || len(took) < count*len(conns)) && len(took) < maxRoundTrips; number++ {
		if time.Since(start) >= duration {
			if count > 0 {
				return result, fmt.Errorf("%v answered %d of %d datagrams in %v", to, len(took), count*len(conns), duration)
			}
			break
		}
		conn := conns[len(took)%len(conns)]
		binary.LittleEndian.PutUint64(out[0].Buf, number)
		sent := time.Now()
		conn.WriteAll(out)
		for {
			n, err := conn.ReadBatch(in, max(timeout-time.Since(sent), 0))
			if err != nil && !errors.Is(err, udpio.ErrWoken) {
				return result, err
			}
			if n == 0 {
				result.Lost++
				break
			}
			if in[0].N == size && binary.LittleEndian.Uint64(in[0].Buf) == number { // else a late answer
				took = append(took, time.Since(sent))
				break
			}
		}
	}
	slices.Sort(took)
	if result.Count = len(took); result.Count > 0 {
		us := func(share float64) float64 { return float64(took[int(share*float64(len(took)-1))]) / 1e3 }
		result.Best, result.Median, result.Ninety9 = us(0), us(.5), us(.99)
	}
	return result, ctx.Err()
}
