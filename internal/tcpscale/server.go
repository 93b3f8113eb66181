package tcpscale

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// ServerConfig is one worker of a server.
type ServerConfig struct {
	Listen       []netip.AddrPort `json:"listen"` // shared with the other workers (SO_REUSEPORT)
	ID           string           `json:"id"`     // sent to clients; at most 32 bytes
	Zone         string           `json:"zone"`   // at most 20 bytes
	Generation   uint64           `json:"generation"`
	Worker       int              `json:"worker"`
	Backlog      int              `json:"backlog"`
	PlainTimeout time.Duration    `json:"plain_timeout_ns"` // eviction of those that announced no period; 0: never
	Files        int              `json:"files"`            // most connections; 0: as the open-file limit allows
	Apart        bool             `json:"apart,omitempty"`  // each worker listens on one of Listen, in turn, instead of sharing all
}

// Validate says what cannot be meant.
func (c *ServerConfig) Validate() error {
	switch {
	case len(c.Listen) == 0:
		return errors.New("nothing to listen on")
	case len(c.ID) > idLength:
		return fmt.Errorf("id %q: more than %d bytes", c.ID, idLength)
	case len(c.Zone) > zoneLength:
		return fmt.Errorf("zone %q: more than %d bytes", c.Zone, zoneLength)
	case c.PlainTimeout < 0:
		return fmt.Errorf("plain time-out %v: less than 0", c.PlainTimeout)
	}
	return nil
}

// States of a connection at the server.
const (
	serverFree  = iota
	serverFresh // nothing read yet
	serverPlain
	serverKnown // has said hello
	serverLeft  // our goodbye and FIN are out: read until the client closes
)

// serverConn is all that the server knows of a connection. It has no timer: whether it is silent is seen in a sweep.
type serverConn struct {
	seen     uint32 // tick of the last bytes
	received uint32 // sequence number of the last heartbeat
	skip     uint16 // bytes of payload still to come
	period   uint16 // ticks
	peer     uint16
	state    uint8
	misses   uint8 // with echoBit: payload is answered by as much; a field of its own would cost 4 bytes
}

const echoBit = 0x80 // above MaxMisses

const (
	maxPeers   = 4096
	otherPeers = maxPeers // index of those beyond
)

type peerKey struct {
	run    uint64
	client uint32
}

type peerCount struct {
	key   peerKey
	count int
}

// Server is the engine of one worker: an event loop's state. Not for concurrent use.
type Server struct {
	config    ServerConfig
	epoll     int
	listeners []int
	paused    bool // accepting stopped: no descriptor is free
	draining  bool
	drainAt   int32
	conns     chunks[serverConn]
	swept     uint32           // tick of the last sweep
	shortest  uint32           // of the periods announced so far, and of what plain streams are granted, in ticks
	seq       uint32           // of the last heartbeat that we sent, to whomever
	partial   map[int32][]byte // beginnings of frames; at most a frame each
	unread    []byte           // of what is being consumed: after the frame that is obeyed
	peers     []peerCount
	peerOf    map[peerKey]uint16
	read      [1 << 16]byte
	write     [heartbeatLength + MaxPayload]byte
	now       time.Duration
	count     counts
}

// counts are what both engines count.
type counts struct {
	connections Connections
	totals      Totals
	beats       Heartbeats
	bytes       Bytes
	failures    [failureKinds]uint64
	limits      map[string]bool
	samples     []FailedTuple
}

func (c *counts) limit(format string, args ...any) {
	if c.limits == nil {
		c.limits = map[string]bool{}
	}
	c.limits[fmt.Sprintf(format, args...)] = true
}

// NewServer opens the listeners.
func NewServer(config ServerConfig) (*Server, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	s := &Server{config: config, epoll: epoll, shortest: inTicks(MaxPeriod), partial: map[int32][]byte{}, peers: make([]peerCount, 0, 16), peerOf: map[peerKey]uint16{}}
	if t := config.PlainTimeout; t > 0 {
		s.shortest = min(s.shortest, inTicks(t))
	}
	for _, address := range config.Listen {
		fd, err := listen(address, config.Backlog)
		if err == nil {
			s.listeners = append(s.listeners, fd)
			err = epollAdd(epoll, fd, unix.EPOLLIN, int32(-fd), 0)
		}
		if err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// Close closes everything.
func (s *Server) Close() {
	for fd := range s.conns.length() {
		if s.conns.at(fd).state != serverFree {
			s.drop(fd)
		}
	}
	for _, fd := range s.listeners {
		unix.Close(fd)
	}
	s.listeners = nil
	unix.Close(s.epoll)
}

func (s *Server) descriptor() int { return s.epoll }

// command is obeyed by the engine: only "drain" means something here.
func (s *Server) command(c Command) {
	if c.Op == OpDrain && !s.draining {
		s.draining = true
		for _, fd := range s.listeners {
			unix.Close(fd)
		}
		s.listeners = nil
	}
}

func (s *Server) done() bool {
	return s.draining && s.count.connections.Established+s.count.connections.Connecting == 0
}

// maxSleep is how long the loop may sleep: commands wait for so long, too.
func (s *Server) maxSleep() time.Duration {
	if s.draining {
		return tick
	}
	return time.Duration(min(s.step(), 5)) * tick
}

// urgent is never: the first report of a second is early enough.
func (s *Server) urgent() bool { return false }

func (s *Server) recorded() *Recorded { return nil }
func (s *Server) counted() *counts    { return &s.count }

// handle serves what the kernel has reported.
func (s *Server) handle(events []unix.EpollEvent, now time.Duration) {
	s.now = now
	for i := range events {
		if events[i].Fd < 0 {
			s.accept(int(-events[i].Fd))
			continue
		}
		s.readable(events[i].Fd)
	}
}

// acceptBurst bounds one turn, so that heartbeats are not kept waiting by a ramp.
const acceptBurst = 64

func (s *Server) accept(listener int) {
	for range acceptBurst {
		if s.config.Files > 0 && s.count.connections.Established+s.count.connections.Connecting >= s.config.Files {
			s.pause(fmt.Sprintf("connections of this worker: %d", s.config.Files))
			return
		}
		fd, err := accept(listener)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			return
		case errors.Is(err, unix.ECONNABORTED):
			continue
		case err != nil:
			kind := classify(err, true)
			s.count.failures[kind]++
			s.pause(fmt.Sprintf("accept: %v", err))
			return
		}
		s.adopt(fd)
	}
}

// adopt takes a new connection into the table.
func (s *Server) adopt(fd int) {
	if err := epollAdd(s.epoll, fd, unix.EPOLLIN, int32(fd), 0); err != nil {
		s.count.failures[classify(err, true)]++
		s.count.limit("epoll: %v", err)
		unix.Close(fd)
		return
	}
	*s.conns.at(int32(fd)) = serverConn{state: serverFresh, seen: ticks(s.now), peer: otherPeers + 1}
	s.count.connections.Connecting++
	s.count.connections.Unanswered++
}

// pause stops accepting until a descriptor is free again. Connections that are still in the accept queue do not see a false success.
func (s *Server) pause(why string) {
	s.count.limit("%s", why)
	if s.paused {
		return
	}
	s.paused = true
	for _, fd := range s.listeners {
		_ = unix.EpollCtl(s.epoll, unix.EPOLL_CTL_DEL, fd, nil) // there it is
	}
}

func (s *Server) resume() {
	s.paused = false
	for _, fd := range s.listeners {
		_ = epollAdd(s.epoll, fd, unix.EPOLLIN, int32(-fd), 0) // was there before
	}
}
