package redundancy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
)

type kind uint8

const (
	kindHello kind = iota + 1
	kindBackend
	kindFlows
	kindEnded
	kindBulkEnd
	kindAlive
	kindAck
)

const (
	version    = 1
	maxFrame   = 1 << 16
	headBytes  = 5
	flowBytes  = 70
	batchFlows = 512 // records in one frame
	batchEnded = 4096
)

var errFrame = errors.New("malformed frame")

// backend is one backend that records of flows name by its number.
type backend struct {
	service, name string
	server        netip.AddrPort
}

// record is one flow as it is sent.
type record struct {
	number  uint32
	backend uint16
	flow    flow.Translated // without service, backend and server
}

// begin appends the head of a frame; finish writes its length.
func begin(b []byte, k kind) []byte { return append(b, 0, 0, 0, 0, byte(k)) }

func finish(b []byte, at int) []byte {
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

func appendHello(b []byte, instance uint64) []byte {
	at := len(b)
	return finish(binary.BigEndian.AppendUint64(append(begin(b, kindHello), version), instance), at)
}

func readHello(body []byte) (instance uint64, err error) {
	if len(body) < 9 {
		return 0, errFrame
	}
	if body[0] != version {
		return 0, fmt.Errorf("the peer speaks version %d, this balancer version %d; run the same release on both", body[0], version)
	}
	return binary.BigEndian.Uint64(body[1:]), nil
}

// appendNumbers is a frame of numbers alone: bulk_end, alive, ack.
func appendNumbers(b []byte, k kind, numbers ...uint64) []byte {
	at := len(b)
	b = begin(b, k)
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return finish(b, at)
}

func appendBackend(b []byte, number uint16, of backend) []byte {
	at := len(b)
	b = appendEndpoint(binary.BigEndian.AppendUint16(begin(b, kindBackend), number), of.server)
	for _, text := range []string{of.service, of.name} {
		b = append(append(b, byte(len(text))), text...)
	}
	return finish(b, at)
}

func readBackend(body []byte) (number uint16, of backend, err error) {
	if len(body) < 2+18 {
		return 0, of, errFrame
	}
	number, of.server = binary.BigEndian.Uint16(body), readEndpoint(body[2:])
	body = body[20:]
	for _, to := range []*string{&of.service, &of.name} {
		if len(body) < 1 || len(body)-1 < int(body[0]) {
			return 0, of, errFrame
		}
		*to, body = string(body[1:1+body[0]]), body[1+body[0]:]
	}
	if len(body) > 0 {
		return 0, of, errFrame
	}
	return number, of, nil
}

func appendEndpoint(b []byte, a netip.AddrPort) []byte {
	address := [16]byte{}
	if a.IsValid() {
		address = a.Addr().As16()
	}
	return binary.BigEndian.AppendUint16(append(b, address[:]...), a.Port())
}

func readEndpoint(b []byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)).Unmap(), binary.BigEndian.Uint16(b[16:]))
}

func appendRecord(b []byte, r *record) []byte {
	b = binary.BigEndian.AppendUint32(b, r.number)
	b = binary.BigEndian.AppendUint16(b, r.backend)
	left := uint64(math.MaxUint64)
	if r.flow.Left >= 0 {
		left = uint64(r.flow.Left / time.Millisecond)
	}
	b = binary.BigEndian.AppendUint64(append(b, r.flow.Key.Proto, byte(r.flow.Progress)), left)
	b = appendEndpoint(appendEndpoint(b, r.flow.Key.Source()), r.flow.Key.Destination())
	return appendEndpoint(b, r.flow.Source)
}

// maxLeft bounds how long a flow may stay without a packet.
const maxLeft = 10 * 365 * 24 * time.Hour

func readRecord(b []byte) (r record, err error) {
	r.number, r.backend = binary.BigEndian.Uint32(b), binary.BigEndian.Uint16(b[4:])
	r.flow.Progress = flow.Progress(b[7])
	r.flow.Left = -1
	if left := binary.BigEndian.Uint64(b[8:]); left != math.MaxUint64 {
		r.flow.Left = time.Duration(min(left, uint64(maxLeft/time.Millisecond))) * time.Millisecond
	}
	client, vip, source := readEndpoint(b[16:]), readEndpoint(b[34:]), readEndpoint(b[52:])
	r.flow.Key = flow.NewKey(client, vip, b[6])
	if !source.Addr().IsUnspecified() {
		r.flow.Source = source
	}
	is6, tcp := client.Addr().Is6(), b[6] == lb.TCP
	switch {
	case !tcp && b[6] != lb.UDP, r.flow.Progress >= flow.NumProgress, tcp != (r.flow.Progress != flow.Plain):
		return r, errFrame
	case vip.Addr().Is6() != is6, r.flow.Source.IsValid() && source.Addr().Is6() != is6:
		return r, errFrame
	}
	return r, nil
}

// readFlows calls each for the records of a frame of flows.
func readFlows(body []byte, each func(*record)) error {
	if len(body)%flowBytes != 0 {
		return errFrame
	}
	for ; len(body) > 0; body = body[flowBytes:] {
		r, err := readRecord(body)
		if err != nil {
			return err
		}
		each(&r)
	}
	return nil
}

// readFrame reads one frame into buffer, which has room for maxFrame, and returns its body.
func readFrame(from io.Reader, buffer []byte) (kind, []byte, error) {
	if _, err := io.ReadFull(from, buffer[:headBytes]); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(buffer)
	if length < 1 || length > maxFrame-4 {
		return 0, nil, fmt.Errorf("%w: %d bytes", errFrame, length)
	}
	k, body := kind(buffer[4]), buffer[headBytes:4+length]
	_, err := io.ReadFull(from, body)
	return k, body, err
}

// readNumber takes a number from the front of a body.
func readNumber(body []byte) (uint64, []byte, error) {
	if len(body) < 8 {
		return 0, nil, errFrame
	}
	return binary.BigEndian.Uint64(body), body[8:], nil
}
