package tcpscale

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// ClientConfig is one worker of a client.
type ClientConfig struct {
	Run         uint64           `json:"run"`    // the same for all workers of a client
	Client      uint32           `json:"client"` // one number for each worker
	ID          string           `json:"id"`
	Worker      int              `json:"worker"`
	Targets     []netip.AddrPort `json:"targets"`        // connections are spread over them evenly
	Sources     []netip.Addr     `json:"sources"`        // empty: as the kernel chooses
	PortLow     uint16           `json:"port_low"`       // source ports; 0: as ip_local_port_range says
	PortHigh    uint16           `json:"port_high"`      // inclusive
	Connections int              `json:"connections"`    // to keep
	Rate        float64          `json:"rate"`           // connects a second; 0: as fast as InFlight allows
	InFlight    int              `json:"in_flight"`      // most connects that are not finished
	Wait        bool             `json:"wait"`           // begin with the ramp at an OpRamp
	Heartbeat   time.Duration    `json:"heartbeat_ns"`   // period of each connection
	Misses      int              `json:"misses"`         // periods without an echo until a connection is lost
	Timeout     time.Duration    `json:"timeout_ns"`     // of a connect, and of the server's hello after it
	BackoffMin  time.Duration    `json:"backoff_min_ns"` // doubled from failure to failure
	BackoffMax  time.Duration    `json:"backoff_max_ns"`
	Churn       float64          `json:"churn"`           // connections closed a second, and opened again
	Reset       bool             `json:"reset"`           // churn closes with RST, without TIME_WAIT
	Payload     int              `json:"payload"`         // bytes after each heartbeat, both ways
	Plain       bool             `json:"plain"`           // one zero byte as heartbeat, no hello, no answer
	Apart       bool             `json:"apart,omitempty"` // each worker connects to one of Targets, in turn
}

// Validate says what cannot be meant.
func (c *ClientConfig) Validate() error {
	switch {
	case len(c.Targets) == 0:
		return errors.New("no target")
	case len(c.Targets) > 1<<15 || len(c.Sources) > 1<<15:
		return fmt.Errorf("more than %d targets or sources", 1<<15)
	case c.Connections < 1:
		return fmt.Errorf("%d connections: at least 1", c.Connections)
	case !(c.Rate >= 0 && c.Rate <= 1e7) || !(c.Churn >= 0 && c.Churn <= 1e7):
		return fmt.Errorf("rate %v, churn %v: 0 to 10000000 a second", c.Rate, c.Churn)
	case c.InFlight < 1:
		return fmt.Errorf("%d in flight: at least 1", c.InFlight)
	case c.Heartbeat < MinPeriod || c.Heartbeat > MaxPeriod:
		return fmt.Errorf("heartbeat %v: %v to %v", c.Heartbeat, MinPeriod, MaxPeriod)
	case c.Misses < 1 || c.Misses > MaxMisses:
		return fmt.Errorf("%d misses: 1 to %d", c.Misses, MaxMisses)
	case c.Timeout < tick || c.BackoffMin < 0 || c.BackoffMax < c.BackoffMin:
		return fmt.Errorf("time-out %v, back-off %v to %v: at least %v, and in this order", c.Timeout, c.BackoffMin, c.BackoffMax, tick)
	case c.Payload < 0 || c.Payload > MaxPayload:
		return fmt.Errorf("payload %d: 0 to %d bytes", c.Payload, MaxPayload)
	case (c.PortLow == 0) != (c.PortHigh == 0) || c.PortLow > c.PortHigh:
		return fmt.Errorf("source ports %d to %d: not a range", c.PortLow, c.PortHigh)
	}
	for _, source := range c.Sources {
		if source.Unmap().Is4() != c.Targets[0].Addr().Unmap().Is4() {
			return fmt.Errorf("source %v and target %v are of different families", source, c.Targets[0])
		}
	}
	return nil
}

// States of a slot.
const (
	slotIdle       = iota // never tried, or queued for a try
	slotWaiting           // backing off
	slotConnecting        // SYN sent
	slotHello             // TCP is up, the server's hello awaited
	slotUp
)

// slot is all that the client knows of one of its connections, besides its timer.
type slot struct {
	began      time.Duration // of the connect
	lost       time.Duration // when it was lost, until it is back; 0: it was not
	fd         int32
	generation int32 // of the descriptor, which distinguishes an old event from a new one
	seq, echo  uint32
	beat       uint32 // tick of the next heartbeat
	echoed     uint32 // tick of the last echo
	received   uint32 // tick of the last bytes
	server     uint16
	skip       uint16
	tries      uint16
	target     uint16
	state      uint8
}

type serverKey struct {
	id         [idLength]byte
	zone       [zoneLength]byte
	generation uint64
}

// Client is the engine of one worker: an event loop's state. Not for concurrent use.
type Client struct {
	config    ClientConfig
	epoll     int
	ports     int // the range of source ports, as ipLocalPortRange takes it; 0: the kernel does not know that option
	targets   []sockaddr
	open      []int32 // unfinished connects of each target
	bad       []bool  // of each target: it has failed since it last answered
	sources   []sockaddr
	slots     chunks[slot]
	wheel     wheel
	fresh     int32   // slots from here on were never tried
	ready     []int32 // to be tried again
	partial   map[int32][]byte
	ramp      bucket
	churn     bucket
	servers   []serverKey
	counts    []int
	serverOf  map[serverKey]uint16
	latencies tallies
	read      [1 << 16]byte
	write     [heartbeatLength + MaxPayload]byte
	now       time.Duration
	stop      pause // the last one
	wall      func() time.Time
	waiting   bool // for OpRamp, or for the end
	began     time.Time
	full      time.Time
	marks     marks
	news      bool // became full since the last report
	count     counts
}

// NewClient makes the engine; it connects once its loop runs.
func NewClient(config ClientConfig) (*Client, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	c := &Client{
		config: config, epoll: epoll, partial: map[int32][]byte{}, serverOf: map[serverKey]uint16{}, wall: time.Now, waiting: config.Wait,
		ramp: newBucket(config.Rate, 0), churn: newBucket(config.Churn, 0),
	}
	c.ports = config.portRange()
	for _, target := range config.Targets {
		c.targets = append(c.targets, newSockaddr(target))
	}
	for _, source := range config.Sources {
		c.sources = append(c.sources, newSockaddr(netip.AddrPortFrom(source, 0)))
	}
	c.open, c.bad = make([]int32, len(c.targets)), make([]bool, len(c.targets))
	c.count.connections.Target = config.Connections
	return c, nil
}

func (c *Client) descriptor() int { return c.epoll }
func (c *Client) done() bool      { return false }

func (c *Client) command(cmd Command) {
	switch cmd.Op {
	case OpRamp:
		c.waiting = false
		c.ramp = newBucket(cmd.Rate, c.now)
	case OpStopOpening:
		c.waiting = true
	case OpMark:
		c.marks.set(cmd.Name, c.now)
	}
}

// maxSleep is how long the loop may sleep: less as long as connects wait for tokens.
func (c *Client) maxSleep() time.Duration {
	if !c.waiting && c.pending() > 0 && c.inFlight() < c.config.InFlight {
		return time.Millisecond
	}
	return tick
}

// urgent is a worker that has just become full: the next one may begin.
func (c *Client) urgent() bool { return c.news }

// recorded is what was measured since the last call; it goes with a report.
func (c *Client) recorded() *Recorded {
	c.news = false
	return c.latencies.take()
}

func (c *Client) counted() *counts { return &c.count }

func (c *Client) inFlight() int { return c.count.connections.Connecting }

// pending is how many slots could be tried now.
func (c *Client) pending() int { return len(c.ready) + c.config.Connections - int(c.fresh) }

// advance fires timers, closes for churn, and connects what the ramp allows.
func (c *Client) advance(now time.Duration) {
	c.now = now
	c.wheel.advance(ticks(now), c.expire)
	if c.churn.cost > 0 && c.count.connections.Established > 0 {
		for range c.churn.take(now, c.count.connections.Established) {
			c.closeOne()
		}
	}
	if c.waiting {
		return
	}
	want := min(c.pending(), c.config.InFlight-c.inFlight(), connectBurst)
	if want <= 0 {
		return
	}
	for range c.ramp.take(now, want) {
		c.try(c.nextSlot())
	}
}

// connectBurst bounds one turn, so that answers are read in between.
const connectBurst = 128

// home is the target that a slot belongs to as long as nothing fails.
func (c *Client) home(i int32) uint16 { return uint16(int(i) % len(c.targets)) }

func (c *Client) nextSlot() int32 {
	if n := len(c.ready); n > 0 {
		i := c.ready[n-1]
		c.ready = c.ready[:n-1]
		return i
	}
	c.fresh++
	c.slots.at(c.fresh - 1).target = c.home(c.fresh - 1)
	return c.fresh - 1
}

// try begins one connect. What fails at once is counted and tried again later, as what fails later is.
func (c *Client) try(i int32) {
	if c.began.IsZero() {
		c.began = c.wall()
	}
	s := c.slots.at(i)
	s.began = c.now
	target := &c.targets[s.target]
	fd, err := c.socket(int(i)/len(c.targets)+int(s.tries), target.family) // after a failure the next source
	if err != nil {
		c.failed(i, -1, classify(err, true), err)
		return
	}
	s.fd, s.generation, s.state = int32(fd), s.generation+1, slotConnecting
	c.count.connections.Connecting++
	c.open[s.target]++
	c.wheel.set(i, ticks(c.now)+inTicks(c.config.Timeout))
	if err = unix.Connect(fd, target.raw); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		c.fail(i, classify(err, true), err)
		return
	}
	if err = epollAdd(c.epoll, fd, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP|unix.EPOLLET, i, s.generation); err != nil {
		c.fail(i, classify(err, true), err)
	}
}

// socket makes the socket of a try and gives it the source of that turn.
func (c *Client) socket(turn, family int) (fd int, err error) {
	if fd, err = tcpSocket(family); err != nil {
		if kind := classify(err, true); kind == OutOfFiles {
			c.count.limit("%v", err)
		}
		return -1, err
	}
	err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if err == nil && c.ports > 0 {
		if err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, ipLocalPortRange, c.ports); errors.Is(err, unix.ENOPROTOOPT) && c.config.PortLow == 0 {
			c.ports, err = 0, nil
		}
	}
	if err == nil && len(c.sources) > 0 {
		// The port is chosen at the connect, for the whole 5-tuple: else all targets share one range.
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, ipBindAddressNoPort, 1)
		if err == nil {
			err = unix.Bind(fd, c.sources[turn%len(c.sources)].raw)
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// closeOne closes an established connection by chance, and queues it to be opened again.
func (c *Client) closeOne() {
	for range 16 {
		i := rand.Int32N(max(c.fresh, 1))
		s := c.slots.at(i)
		if s.state != slotUp {
			continue
		}
		if !c.config.Plain {
			bye := frame{kind: frameBye}
			if !c.send(i, c.write[:bye.put(c.write[:])]) {
				return
			}
		}
		c.count.totals.Closed++
		c.release(i, c.config.Reset)
		s.target = c.home(i)
		c.ready = append(c.ready, i)
		return
	}
}
