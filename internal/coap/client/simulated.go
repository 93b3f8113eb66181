package client

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"time"

	"github.com/weir-lb/weir/internal/coap/exchange"
	"github.com/weir-lb/weir/internal/coap/message"
	dtls "github.com/weir-lb/weir/internal/dtls/client"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

type state uint8

const (
	stateNew       state = iota
	stateQueued          // wants a handshake
	stateHandshake       // has one in progress
	stateReady           // has a session (or needs none); one request in flight, or a pause
	stateWaiting         // pauses after an error
	stateEnded           // done, or stopped by an error
)

// simulated is one client of the load. It belongs to its worker's goroutine.
type simulated struct {
	w           *worker
	socket      *socket
	number      uint32 // among all clients, from 0
	socketIndex int    // in its socket
	state       state
	hadSession  bool
	sessions    uint32 // handshakes begun

	handshake   *handshake.Client
	begun       time.Duration // of the handshake
	association *record.Association
	exchange    exchange.Session // with DTLS
	resumption  *handshake.Session
	final       handshake.Final
	tickets     tls.ClientSessionCache // of TLS; nil: nothing is resumed
	progress    progress

	pending    exchange.ID
	count      uint32 // requests sent
	success    uint32 // answered with 2.xx
	answeredAt time.Duration
}

// setTimer sets the time at which the client is due, and replaces an earlier one.
func (c *simulated) setTimer(at time.Duration) { c.w.timers.Set(c.index(), at) }

func (c *simulated) clearTimer() { c.w.timers.Remove(c.index()) }

// index returns the client's index in its worker's list.
func (c *simulated) index() int32 { return int32(int(c.number) - c.w.first) }

// connect makes the client ready: at once over plain UDP, else by a handshake or a connection.
func (c *simulated) connect() {
	if !c.w.b.target.ownSession() {
		c.w.stats.Clients++
		c.ready()
		return
	}
	c.state = stateQueued
	c.w.queue = append(c.w.queue, c)
}

// begin starts the handshake.
func (c *simulated) begin() {
	w := c.w
	if w.b.target.Stream {
		c.dial()
		return
	}
	own := w.b.security
	own.Identity, own.Resume = w.b.identity(c.number), c.resumption
	cid := make([]byte, w.b.cfg.CIDLength)
	if len(cid) >= 4 {
		binary.BigEndian.PutUint32(cid, c.number)
	}
	if len(cid) == 8 { // room for what makes it unique: in a capture it then says which session a record belongs to
		binary.BigEndian.PutUint32(cid[4:], c.sessions)
	}
	c.sessions++
	client, err := handshake.NewClient(own.handshake(cid))
	if err != nil {
		w.fail(err)
		return
	}
	c.handshake, c.state, c.begun = client, stateHandshake, w.now
	c.socket.handshaker = c
	w.inFlight++
	if c.hadSession {
		w.stats.Rehandshakes++
	}
	client.Start(w.now, c.transmit)
	c.setTimer(client.Deadline())
}

func (c *simulated) transmit(datagram []byte) { c.w.transmit(c.socket, datagram) }

// shake checks whether the handshake has ended.
func (c *simulated) shake() {
	done, err := c.handshake.Done()
	if !done {
		c.setTimer(c.handshake.Deadline())
		return
	}
	w := c.w
	w.inFlight--
	c.socket.handshaker = nil
	if err != nil {
		c.handshake = nil
		w.stats.HandshakeErrors++
		if w.phase == phaseProbe {
			w.fail(dtls.Explain(err, w.now-c.begun))
		}
		c.resumption = nil
		c.trouble()
		return
	}
	result := c.handshake.Result()
	c.association, c.final = result.Association, result.Final
	if w.b.cfg.Resume {
		c.resumption = result.Session
	}
	if result.Resumed {
		w.stats.Resumed++
	}
	c.handshake = nil
	c.hadSession = true
	w.stats.Handshakes++
	w.stats.Clients++
	w.handshakes.Record(w.now - c.begun)
	c.ready()
}

// ready sends a request when it is time for requests.
func (c *simulated) ready() {
	c.state = stateReady
	w := c.w
	c.clearTimer()
	if w.phase == phaseLoad || w.phase == phaseProbe {
		c.send(w.now)
		return
	}
	if w.met++; w.met == len(w.clients) {
		w.publish()
		w.b.wake()
	}
}

// send sends the next request, which was to be sent at a time that may have passed already: the wait for its answer counts from there.
func (c *simulated) send(intended time.Duration) {
	w := c.w
	if w.phase == phaseDrain {
		return
	}
	w.move(c.socket)
	c.progress.begun, c.progress.uploaded, c.progress.downloaded, c.progress.exponent = intended, 0, 0, w.b.exponent()
	c.progress.echo, c.progress.echoes = c.progress.echo[:0], 0
	c.transmitNext()
}

// transmitNext sends the next message of the transfer.
func (c *simulated) transmitNext() {
	w := c.w
	session := c.session()
	request, err := w.message(c)
	if err != nil {
		w.fail(err)
		return
	}
	binary.BigEndian.PutUint16(request[2:], w.endpoint.NextID(session))
	binary.BigEndian.PutUint32(request[4:], c.number)
	binary.BigEndian.PutUint32(request[8:], c.count)
	if w.b.cfg.Serials { // the token's
		copy(request[len(request)-len(w.b.cfg.Payload):], request[4:4+tokenLength])
	}
	c.count++
	w.stats.Sent++
	id, err := w.endpoint.Send(session, request, w.now)
	if err != nil {
		w.fail(err)
		return
	}
	c.pending = id
}

func closeNotify() (record.ContentType, []byte) { return record.Alert, []byte{1, 0} }

// seal protects payload and sends it.
func (c *simulated) seal(kind record.ContentType, payload []byte) {
	w := c.w
	if c.association == nil {
		return
	}
	head := c.association.HeadRoom()
	n := copy(w.sealing[head:], payload)
	if datagram, err := c.association.Seal(w.scratch, kind, w.sealing, head, n); err == nil {
		w.transmit(c.socket, datagram)
	}
}

// receive handles a datagram with DTLS records.
func (c *simulated) receive(datagram []byte) {
	w := c.w
	if c.state == stateHandshake {
		c.handshake.Receive(w.scratch, datagram, w.now, c.transmit)
		c.shake()
		return
	}
	var r record.Record
	var err error
	for rest := datagram; len(rest) > 0; {
		if rest, err = record.Next(rest, w.b.cfg.CIDLength, &r); err != nil || c.association == nil {
			w.stats.Stray++
			return
		}
		kind, payload, _, verdict := c.association.Open(w.scratch, &r)
		switch {
		case verdict != record.Opened:
			w.stats.Stray++
		case kind == record.ApplicationData:
			if ack := w.endpoint.Receive(&c.exchange, payload, w.out, w.now); len(ack) > 0 {
				c.seal(record.ApplicationData, ack)
			}
		case kind == record.RoutabilityCheck:
			c.routability(payload)
		case kind == record.Handshake && c.final.Present(): // the server repeats its last flight, so ours was lost
			if flight, err := c.final.Append(c.association, w.scratch, nil); err == nil {
				c.transmit(flight)
			}
		case kind == record.Alert && len(payload) == 2 && (payload[0] == 2 || payload[1] == 0):
			c.closed()
			return
		}
	}
}

// routability answers a path_challenge with the same cookie as path_response, to where it came from (RFC 9853).
func (c *simulated) routability(payload []byte) {
	const challenge, response, length = 0, 1, 9
	if len(payload) != length || payload[0] != challenge {
		c.w.stats.Stray++
		return
	}
	payload[0] = response
	c.seal(record.RoutabilityCheck, payload)
	c.w.stats.PathChallenges++
}

// answered ends a message with its response.
func (c *simulated) answered(m *message.Message) {
	w := c.w
	c.pending = 0
	if w.answeredAt != 0 && w.phase == phaseLoad {
		w.delays.Silence = max(w.delays.Silence, w.now-w.answeredAt)
	}
	c.answeredAt, w.answeredAt = w.now, w.now
	if c.repeats(m) || c.goesOn(m) {
		c.transmitNext()
		return
	}
	err := c.refusal(m)
	if w.phase == phaseProbe {
		if err != nil {
			w.fail(err)
			return
		}
		w.b.probed.Store(true)
		w.b.wake()
		return
	}
	w.rtt.Record(w.now - c.progress.begun)
	if err != nil {
		w.stats.Failed++
		w.stats.Errors++
		c.pauseOrEnd()
		return
	}
	if w.b.cfg.Mode != ModeRequest {
		if w.b.cfg.Mode == ModeObserve {
			c.counted()
		}
		return // what counts comes from the server
	}
	w.stats.Requests++
	if w.b.cfg.Serials && !c.serial(m.Payload) {
		w.stats.Wrong++
	}
	c.success++
	switch {
	case w.b.cfg.Requests > 0 && c.success >= uint32(w.b.cfg.Requests):
		c.end()
	case w.b.cfg.HandshakeEvery > 0 && c.success%uint32(w.b.cfg.HandshakeEvery) == 0:
		c.again()
	case w.b.cfg.Pause > 0:
		c.setTimer(w.now + w.b.cfg.Pause)
	default:
		c.send(w.now)
	}
}

// serial reports whether an answer begins with number and serial number of the newest request.
func (c *simulated) serial(payload []byte) bool {
	return len(payload) >= tokenLength && binary.BigEndian.Uint32(payload) == c.number && binary.BigEndian.Uint32(payload[4:]) == c.count-1
}

// refusal takes a response for what the mode needs, and says why it is not that.
func (c *simulated) refusal(m *message.Message) error {
	switch {
	case m.Code.Class() != 2:
		return responseError{m.Code}
	case c.w.b.cfg.Mode == ModeObserve:
		return c.registered(m)
	case c.w.b.cfg.Mode.reverse():
		c.progress.open = true
	}
	return nil
}

// failed ends a request without a response.
func (c *simulated) failed(reason exchange.Failure) {
	w := c.w
	c.pending = 0
	switch reason {
	case exchange.Cancelled:
		return
	case exchange.Timeout:
		w.stats.Lost++
		w.stats.Errors++
		if w.phase == phaseProbe {
			w.fail(ErrNoResponse)
		}
		c.drop()
		c.trouble()
	default:
		w.stats.Failed++
		w.stats.Errors++
		c.pauseOrEnd()
	}
}

// errEnded says that the server has ended the session or the connection during the first request.
var errEnded = errors.New("the server has ended the session without an answer")

// closed ends the session because the server ended it.
func (c *simulated) closed() {
	if c.state == stateEnded { // nothing is asked of it any more
		c.hangUp()
		return
	}
	if c.pending != 0 {
		c.w.stats.Lost++
	}
	c.w.stats.Errors++
	if c.w.phase == phaseProbe {
		c.w.fail(errEnded)
	}
	c.pending = 0
	c.drop()
	c.trouble()
}

// hangUp ends the session and notifies the server.
func (c *simulated) hangUp() {
	if c.socket.stream != nil {
		c.release()
		return
	}
	c.seal(closeNotify())
	c.association = nil
}

// drop gives the session up and notifies the server, so that a new handshake from the same port is not unusual for it.
func (c *simulated) drop() {
	c.w.stats.Clients--
	c.progress = progress{}
	if c.association == nil && c.socket.stream == nil {
		return
	}
	c.hangUp()
	c.w.stats.LostSessions++
	c.w.endpoint.Forget(&c.exchange)
}

// trouble waits and starts again with NoStop, or ends the client.
func (c *simulated) trouble() {
	if c.w.b.cfg.NoStop && c.w.phase < phaseDrain {
		c.state = stateWaiting
		c.setTimer(c.w.now + c.w.jitter())
		return
	}
	c.end()
}

// pauseOrEnd continues with the same session after a refused request.
func (c *simulated) pauseOrEnd() {
	if !c.w.b.cfg.NoStop {
		c.end()
		return
	}
	c.setTimer(c.w.now + c.w.jitter())
}

func (w *worker) jitter() time.Duration {
	return errorPause + time.Duration(w.random.Int64N(int64(errorPause/2)))
}

func (c *simulated) end() {
	c.state = stateEnded
	c.clearTimer()
	if c.w.ended++; c.w.ended == len(c.w.clients) {
		c.w.publish()
		c.w.b.wake()
	}
}

// due handles the client's timer of the time at.
func (c *simulated) due(at time.Duration) {
	switch c.state {
	case stateHandshake:
		if c.handshake == nil {
			c.introduced()
			return
		}
		c.handshake.Timeout(c.w.scratch, c.w.now, c.transmit)
		c.shake()
	case stateReady:
		if c.progress.feed.token != nil {
			c.notify()
		} else if c.pending == 0 && c.w.phase == phaseLoad && !c.progress.open {
			c.send(at)
		}
	case stateWaiting:
		c.connect()
	}
}

// goodbye sends close_notify to the server and counts a request without an answer.
func (c *simulated) goodbye() {
	c.progress.observing = 0
	if c.pending != 0 && c.w.b.drained.Load() {
		c.w.stats.Lost++
		c.w.stats.Errors++
	}
	c.hangUp()
}
