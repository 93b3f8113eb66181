package ebpf

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weir-lb/weir/internal/steering/packet"
)

// TestRootSYNACKRacesPortTaking: the pool of source ports is full of handshakes that nobody has answered. One processor
// carries the SYN-ACK of a handshake, another one the SYN of a new client that takes that handshake's port, in the same tick
// of the clock. Either the SYN-ACK arrives and the handshake keeps its port, or the port changes hands and the SYN-ACK is
// dropped: a client that gets a SYN-ACK believes that it has a connection.
func TestRootSYNACKRacesPortTaking(t *testing.T) {
	t.Parallel()
	const rounds = 20000
	for _, hook := range hooks {
		t.Run(hook.String(), func(t *testing.T) {
			w := newWorld(t)
			defer w.close()
			d := w.serving(t, hook, `
limits: {flows: 65536}
services:
- name: one
  mode: nat
  vips: [{address: "192.0.2.1", protocol: tcp, port: 80}]
  snat: {addresses: ["198.18.0.1"], ports: 2000-2063}
  backends: [{name: a, address: "10.1.0.1", port: 7000}]
`)
			d.tables.control.Now = 1 << 30
			r := portRace{
				d: d, program: d.program(hook), redirected: redirected(hook),
				syn: frameOf(text(t, "tcp 10.2.0.1:5000 > 192.0.2.1:80 flags=syn")), reset: frameOf(text(t, "tcp 10.2.0.1:5000 > 192.0.2.1:80 flags=rst")),
				answer: frameOf(text(t, "tcp 10.1.0.1:7000 > 198.18.0.1:2000 flags=syn,ack")),
			}
			do(t, w.host, r.fill)
			w.onEachCPU(t, func(cpu int) error {
				switch cpu {
				case 0:
					defer r.round.Store(-1)
					for i := range int64(rounds) {
						if err := r.take(i + 1); err != nil {
							return err
						}
					}
				case 1:
					return r.answers()
				}
				return nil
			})
			if r.lost > 0 {
				t.Errorf("%d handshakes lost their port although their SYN-ACK had reached the client", r.lost)
			}
			if r.kept < rounds/100 || r.moved < rounds/100 {
				t.Errorf("%d handshakes kept their port, %d lost it: the test is for both", r.kept, r.moved)
			}
		})
	}
}

const (
	racePorts, firstRacePort = 64, 2000
	closed                   = -2 // the holder of a port has reset its handshake
)

// portRace is the state of TestRootSYNACKRacesPortTaking. All but round, done and what lies between them belongs to the
// processor that takes ports.
type portRace struct {
	d                  *Datapath
	program            *ebpf.Program
	redirected         uint32
	syn, reset, answer []byte
	holders            [racePorts]int // client of each port, or closed
	next               int            // the port that is taken next
	kept, moved, lost  int
	refused            int // since the clock moved

	round, done atomic.Int64
	reached     int // the client that the SYN-ACK of the round reached, or -1
	err         error
}

// send returns the packet that leaves, or false if none does.
func (r *portRace) send(frame []byte) (p packet.Packet, left bool, err error) {
	run := ebpf.RunOptions{Data: frame, DataOut: make([]byte, 256), Repeat: 1}
	verdict, err := r.program.Run(&run)
	if err != nil || verdict != r.redirected {
		return p, false, err
	}
	err = packet.Parse(run.DataOut[14:], &p)
	return p, err == nil, err
}

func from(frame []byte, client int) []byte {
	binary.BigEndian.PutUint32(frame[14+12:], uint32(10<<24|2<<16|client))
	return frame
}

// opened notes that a client has the port of a packet.
func (r *portRace) opened(p *packet.Packet, client int) int {
	at := int(p.Key.SrcPort) - firstRacePort
	r.holders[at], r.next = client, (at+1)%racePorts
	return at
}

// fill takes all ports, and goes on until the service may search no more and takes the next port each time.
func (r *portRace) fill() error {
	for client := range 2 * racePorts {
		p, left, err := r.send(from(r.syn, client))
		if err != nil {
			return err
		}
		if left {
			r.opened(&p, client)
		}
	}
	return nil
}

// take is a round: a new client takes the next port while the SYN-ACK to its holder is under way.
func (r *portRace) take(round int64) error {
	client, port, holder := 1000+int(round), r.next, r.holders[r.next]
	binary.BigEndian.PutUint16(r.answer[14+22:], uint16(firstRacePort+port))
	syn := from(r.syn, client)
	r.round.Store(round)
	p, left, err := r.send(syn)
	for r.done.Load() != round { //nolint:revive // its packet is on the way
	}
	if err != nil || r.err != nil {
		return errors.Join(err, r.err)
	}
	at := -1
	if left {
		at = r.opened(&p, client)
	} else { // refused: the SYN-ACK came in the last moment
		r.next = (port + 1) % racePorts
		r.refused++
	}
	switch {
	case at != port:
		r.kept++
	case holder == closed:
	case r.reached == holder:
		r.lost++
	default:
		r.moved++
	}
	if r.reached >= 0 { // an answered handshake is in the way of the next rounds
		_, _, err = r.send(from(r.reset, r.reached))
		if i := slices.Index(r.holders[:], r.reached); i >= 0 {
			r.holders[i] = closed
		}
	}
	if err == nil && r.refused == 200 { // the service may try to take 256 ports in vain
		r.refused = 0
		r.d.tables.control.Now += 4000
		err = r.fill()
	}
	return err
}

// answers carries the SYN-ACK of each round.
func (r *portRace) answers() error {
	for next := int64(1); ; next++ {
		for r.round.Load() != next {
			if r.round.Load() < 0 {
				return nil
			}
		}
		p, left, err := r.send(r.answer)
		r.reached, r.err = -1, err
		if to := p.Key.Dst; left {
			r.reached = int(to[14])<<8 | int(to[15])
		}
		r.done.Store(next)
	}
}
