package node

import (
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/dtls/engine"
)

// A worker whose queue is full cannot send the requests that a client asks for: it says so, and when to ask again.
func TestReverseRequestWithAFullQueue(t *testing.T) {
	cfg := Config{Listen: []string{":0"}}.WithDefaults()
	l := &listener{cfg: &cfg, exponent: 6, extended: newExtended(time.Now, false), diagnosis: new(diagnosis)}
	l.tree = l.newTree()
	h := newHandler(l, noWorker{}, 1) // its Post has no room
	var b message.Builder
	b.Reset(make([]byte, 0, 256), message.Con, message.POST, 1, []byte("token"))
	b.Text(message.URIPath, "reverse-request")
	b.Text(message.URIQuery, "req=5")
	b.Text(message.URIQuery, "res=x")
	wire, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	peer := new(engine.Peer) // proven
	var m message.Message
	if err := message.Parse(h.Serve(peer, wire, make([]byte, 0, engine.MaxPayload), 0), &m); err != nil {
		t.Fatal(err)
	}
	if age, ok := m.Uint(message.MaxAge); m.Code != message.ServiceUnavailable || !ok || age == 0 {
		t.Errorf("%s, Max-Age %d %t; want 5.03 with a Max-Age", m.Code, age, ok)
	}
	if s := l.extended.status(); s != (ReverseStatus{RequestsRefused: 1}) {
		t.Errorf("%+v", s)
	}
	if own := peer.State.(*session); len(own.reverses) != 0 { //nolint:forcetypeassert // Serve set it
		t.Error("requests are still to be sent")
	}
}
