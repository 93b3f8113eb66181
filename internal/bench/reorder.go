package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// reorderedConn is a connected UDP socket over IPv4 that writes each datagram as two fragments, the later one first. It writes
// whole frames through a packet socket, and reads as the socket does. For one goroutine.
type reorderedConn struct {
	net.Conn
	packets int
	frames  frames
	from    netip.AddrPort
	next    uint16 // id of the next datagram
	batch   []mmsghdr
}

// fragmentCut is the payload of the first fragment: a multiple of 8 bytes that fits an Ethernet frame.
const fragmentCut = 1480

// reordering has a client's socket write re-ordered fragments on its way to the middle.
func (r *floodRun) reordering(conn net.Conn) (net.Conn, error) {
	clients := r.Lab.Namespace("clients")
	index, own, err := clients.Interface("eth0")
	if err != nil {
		return conn, err
	}
	_, gateway, err := r.Lab.Namespace("middle").Interface("veth0")
	if err != nil {
		return conn, err
	}
	from, to := conn.LocalAddr().(*net.UDPAddr).AddrPort(), conn.RemoteAddr().(*net.UDPAddr).AddrPort()
	batch, _ := newBatch()
	c := &reorderedConn{Conn: conn, batch: batch[:2], packets: -1, from: from, next: from.Port()}
	c.frames.attack = &Attack{To: to, GatewayMAC: gateway, SourceMAC: own}
	err = clients.Do(func() (err error) {
		c.packets, err = packetSocket(index, 0)
		return err
	})
	if err != nil {
		return conn, err
	}
	return c, nil
}

// Write sends one datagram, longer than a first fragment. Both fragments leave in one system call: what holds a writer up shall not
// come between them.
func (c *reorderedConn) Write(payload []byte) (int, error) {
	first, later := c.fragments(payload)
	fill(&c.batch[0], later)
	fill(&c.batch[1], first)
	sent, err := sendmmsg(c.packets, c.batch)
	if err == nil && sent < len(c.batch) {
		err = errors.New("the link takes no more")
	}
	if err != nil {
		return 0, fmt.Errorf("write fragments: %w", err)
	}
	return len(payload), nil
}

// fragments cuts the datagram with this payload in two (RFC 791 section 3.2).
func (c *reorderedConn) fragments(payload []byte) (first, later []byte) {
	c.next++
	whole := c.frames.udp(make([]byte, 0, attackPayload+len(payload)), c.from, payload)
	cut := func(body []byte, offset uint16) []byte {
		frame := append(whole[:attackUDP:attackUDP], body...)
		binary.BigEndian.PutUint16(frame[16:], uint16(len(frame)-14))
		binary.BigEndian.PutUint16(frame[18:], c.next)
		binary.BigEndian.PutUint16(frame[20:], offset)
		sumIP(frame)
		return frame
	}
	const moreFragments = 0x2000
	return cut(whole[attackUDP:attackUDP+fragmentCut], moreFragments), cut(whole[attackUDP+fragmentCut:], fragmentCut/8)
}

func (c *reorderedConn) Close() error { return errors.Join(unix.Close(c.packets), c.Conn.Close()) }
