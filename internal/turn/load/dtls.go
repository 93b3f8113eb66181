package load

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	dtls "github.com/weir-lb/weir/internal/dtls/client"
	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
	"github.com/weir-lb/weir/internal/turn/requests"
	"github.com/weir-lb/weir/internal/udpio"
)

// dtlsLink is a DTLS session with a TURN server: every message is a record, padded as over TCP, which some servers require (RFC 8656
// section 12.5 allows it). Any certificate is trusted: this is for measurements.
type dtlsLink struct {
	datagramLink
	session *dtls.Session

	mu     sync.Mutex // guards what follows: data and requests are sent by different goroutines
	slots  [][]byte   // of the records of a burst
	sealed []udpio.Message
}

// openDTLS makes a session over a socket.
func openDTLS(socket *datagramLink, config *Config) (*dtlsLink, error) {
	var trust atomic.Pointer[handshake.Credentials]
	trust.Store(&handshake.Credentials{TrustAll: true})
	ctx, cancel := context.WithTimeout(context.Background(), config.Timeout)
	defer cancel()
	session, err := dtls.Shake(ctx, handshake.ClientConfig{
		Config: handshake.Config{Suites: record.CertificateSuites(), Credentials: &trust},
	}, &dtlsWire{link: socket, room: udpio.NewMessages(8, 1<<16)})
	if err != nil {
		return nil, err
	}
	d := &dtlsLink{datagramLink: *socket, session: session, slots: make([][]byte, config.Burst), sealed: make([]udpio.Message, config.Burst)}
	for i := range d.slots {
		d.slots[i] = make([]byte, dtls.HeadRoom+max(config.Size+requests.ChannelHeader+3, longestRequest)+dtls.TailRoom)
	}
	return d, nil
}

// longestRequest is more bytes than a request of a client has.
const longestRequest = 2048

// dtlsWire carries a handshake.
type dtlsWire struct {
	link *datagramLink
	room []udpio.Message
}

// Send implements dtls.Wire.
func (w *dtlsWire) Send(datagram []byte) {
	w.link.send([]udpio.Message{{Buf: datagram, N: len(datagram)}})
}

// Receive implements dtls.Wire.
func (w *dtlsWire) Receive(deadline time.Time, handle func(datagram []byte)) error {
	n, err := w.link.receive(w.room, max(time.Until(deadline), time.Millisecond), handle)
	if err != nil && !errors.Is(err, udpio.ErrWoken) {
		return err
	}
	if n == 0 {
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (d *dtlsLink) send(messages []udpio.Message) (taken int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(messages) > 0 {
		n := min(len(messages), len(d.slots))
		taken += d.sendLocked(messages[:n])
		messages = messages[n:]
	}
	return taken
}

// sendLocked sends at most as many messages as there are slots.
func (d *dtlsLink) sendLocked(messages []udpio.Message) int {
	out := d.sealed[:0]
	for i := range messages {
		m, b := &messages[i], d.slots[i]
		n := copy(b[dtls.HeadRoom:], m.Buf[:m.N])
		for ; n&3 != 0; n++ {
			b[dtls.HeadRoom+n] = 0
		}
		sealed, err := d.session.Seal(b, n)
		if err != nil {
			break
		}
		out = append(out, udpio.Message{Buf: sealed, N: len(sealed)})
	}
	return d.datagramLink.send(out)
}

func (d *dtlsLink) receive(room []udpio.Message, wait time.Duration, each func(b []byte)) (int, error) {
	var ended error
	n, err := d.datagramLink.receive(room, wait, func(datagram []byte) {
		err := d.session.Open(datagram,
			each,
			func(reply []byte) { d.datagramLink.send([]udpio.Message{{Buf: reply, N: len(reply)}}) })
		ended = errors.Join(ended, err)
	})
	return n, errors.Join(err, ended)
}

func (d *dtlsLink) close() error {
	if b, err := d.session.CloseNotify(); err == nil {
		d.datagramLink.send([]udpio.Message{{Buf: b, N: len(b)}})
	}
	return d.datagramLink.close()
}
