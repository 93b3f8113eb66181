package oscore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/weir-lb/weir/internal/coap/message"
)

// built makes a message of options in order.
func built(t testing.TB, code message.Code, payload string, options ...any) []byte {
	t.Helper()
	var b message.Builder
	b.Reset(make([]byte, 0, 1024), message.Con, code, 7, []byte("token"))
	for i := 0; i < len(options); i += 2 {
		id, _ := options[i].(message.OptionID)
		switch value := options[i+1].(type) {
		case string:
			b.Text(id, value)
		case int:
			b.Uint(id, uint32(value))
		}
	}
	b.Payload([]byte(payload))
	wire, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

// pair is a client and a server that share a context.
type pair struct {
	t              testing.TB
	codec          *Codec
	client, server *Context
	table          *Table
}

func newPair(t testing.TB, v *vector) *pair {
	t.Helper()
	client, server := v.contexts(t, 0)
	table, err := NewTable(server)
	if err != nil {
		t.Fatal(err)
	}
	return &pair{t: t, codec: NewCodec(2048), client: client, server: server, table: table}
}

func (p *pair) seal(request []byte) ([]byte, *Binding) {
	p.t.Helper()
	b := new(Binding)
	sealed, err := p.codec.SealRequest(make([]byte, 0, 2048), p.client, request, b)
	if err != nil {
		p.t.Fatal(err)
	}
	return sealed, b
}

func (p *pair) open(sealed []byte) ([]byte, *Binding, Verdict) {
	p.t.Helper()
	var m message.Message
	if err := message.Parse(sealed, &m); err != nil {
		p.t.Fatal(err)
	}
	b := new(Binding)
	plain, verdict := p.codec.OpenRequest(make([]byte, 0, 2048), &m, p.table, b)
	return plain, b, verdict
}

func (p *pair) respond(b *Binding, response []byte) []byte {
	p.t.Helper()
	sealed, err := p.codec.SealResponse(make([]byte, 0, 2048), response, b, false)
	if err != nil {
		p.t.Fatal(err)
	}
	return sealed
}

func (p *pair) openResponse(sealed []byte, b *Binding) ([]byte, error) {
	p.t.Helper()
	var m message.Message
	if err := message.Parse(sealed, &m); err != nil {
		p.t.Fatal(err)
	}
	return p.codec.OpenResponse(make([]byte, 0, 2048), &m, b)
}

// Each option is where RFC 8613 figure 5 says, and comes back.
func TestOptionClasses(t *testing.T) {
	p := newPair(t, &withContext)
	request := built(t, message.PUT, "payload",
		message.IfMatch, "tag", message.URIHost, "host", message.Observe, 0, message.URIPort, 99, message.URIPath, "path", message.ContentFormat, 50,
		message.URIQuery, "a=b", message.HopLimit, 3, message.Accept, 60, message.Block1, 9, message.ProxyScheme, "coap", message.Size1, 5,
		message.Echo, "echo", message.NoResponse, 2, message.RequestTag, "r", message.OptionID(65000), "x")
	sealed, _ := p.seal(request)
	var m message.Message
	if err := message.Parse(sealed, &m); err != nil || m.Code != message.FETCH {
		t.Fatalf("%v, %s", err, m.Code)
	}
	var outer []message.OptionID
	for options := m.Options(); options.Next(); {
		outer = append(outer, options.ID())
	}
	want := fmt.Sprint([]message.OptionID{message.URIHost, message.Observe, message.URIPort, message.OSCORE, message.HopLimit, message.ProxyScheme})
	if got := fmt.Sprint(outer); got != want {
		t.Errorf("outer options %s, want %s", got, want)
	}
	plain, b, verdict := p.open(sealed)
	if verdict != Opened || !bytes.Equal(plain, request) {
		t.Errorf("%d: opened\n%x, want\n%x", verdict, plain, request)
	}
	response := p.respond(b, built(t, message.Content, "state", message.ETag, "e", message.Observe, 77, message.MaxAge, 5, message.Block2, 9))
	if err := message.Parse(response, &m); err != nil || m.Code != message.Content {
		t.Fatalf("%v, %s", err, m.Code)
	}
	for options := m.Options(); options.Next(); {
		if id := options.ID(); id != message.Observe && id != message.OSCORE {
			t.Errorf("outer option %s of a response", id)
		}
	}
}

// A request is taken once, in any order within the window; changing any byte of what is protected is found.
func TestReplayReorderAndForgery(t *testing.T) {
	p := newPair(t, &withSalt)
	request := built(t, message.GET, "", message.URIPath, "x")
	var all [][]byte
	for range 200 {
		sealed, _ := p.seal(request)
		all = append(all, sealed)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for first := 0; first < len(all); first += 20 { // reordered by up to 20, half of them lost
		for _, i := range random.Perm(20)[:10] {
			if _, _, verdict := p.open(all[first+i]); verdict != Opened {
				t.Errorf("request %d: verdict %d", first+i, verdict)
			}
			if _, _, verdict := p.open(all[first+i]); verdict != Replayed {
				t.Errorf("request %d again: verdict %d", first+i, verdict)
			}
		}
	}
	for i, sealed := range all[:100] {
		if _, _, verdict := p.open(sealed); verdict != Replayed {
			t.Errorf("request %d, which is out of the window: verdict %d", i, verdict)
		}
	}
	sealed, binding := p.seal(request)
	start := bytes.IndexByte(sealed, 0xff) + 1
	for i := start; i < len(sealed); i++ {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if _, _, verdict := p.open(changed); verdict != Forged {
			t.Errorf("byte %d changed: verdict %d", i, verdict)
		}
	}
	_, b, verdict := p.open(sealed) // forgeries have not touched the window
	if verdict != Opened {
		t.Fatal(verdict)
	}
	response := p.respond(b, built(t, message.Content, "state"))
	for i := bytes.IndexByte(response, 0xff) + 1; i < len(response); i++ {
		changed := bytes.Clone(response)
		changed[i] ^= 1
		if _, err := p.openResponse(changed, binding); !errors.Is(err, ErrResponse) {
			t.Errorf("response, byte %d changed: %v", i, err)
		}
	}
	_, other := p.seal(request)
	if _, err := p.openResponse(response, other); !errors.Is(err, ErrResponse) {
		t.Errorf("the response to another request: %v", err)
	}
	if _, err := p.openResponse(built(t, message.Content, "state"), binding); !errors.Is(err, ErrUnprotected) {
		t.Errorf("a response without protection: %v", err)
	}
	if _, err := p.openResponse(response, binding); err != nil {
		t.Error(err)
	}
}

// Notifications have numbers that rise; an old one, one twice, and the first one again are not taken (RFC 8613 section 7.4.1).
func TestNotificationsInOrder(t *testing.T) {
	p := newPair(t, &withSalt)
	sealed, binding := p.seal(built(t, message.GET, "", message.Observe, 0, message.URIPath, "obs"))
	_, b, verdict := p.open(sealed)
	if verdict != Opened {
		t.Fatal(verdict)
	}
	var all [][]byte
	nonces := map[string]bool{}
	for i := range 5 {
		all = append(all, p.respond(b, built(t, message.Content, fmt.Sprint("state ", i), message.Observe, i)))
		nonces[string(p.codec.nonce[:])] = true
	}
	if len(nonces) != 5 {
		t.Errorf("5 notifications with %d nonces", len(nonces))
	}
	for _, step := range []struct {
		index int
		want  error
	}{{0, nil}, {0, ErrOld}, {1, nil}, {3, nil}, {2, ErrOld}, {3, ErrOld}, {0, ErrOld}, {4, nil}} {
		plain, err := p.openResponse(all[step.index], binding)
		if !errors.Is(err, step.want) || (err == nil) != (step.want == nil) {
			t.Errorf("notification %d: %v, want %v", step.index, err, step.want)
		}
		var m message.Message
		if err == nil && (message.Parse(plain, &m) != nil || string(m.Payload) != fmt.Sprint("state ", step.index)) {
			t.Errorf("notification %d: %q", step.index, m.Payload)
		}
		if value, ok := m.Uint(message.Observe); err == nil && (!ok || value != uint32(step.index)) {
			t.Errorf("notification %d has Observe %d, %v", step.index, value, ok)
		}
	}
	// One that was not requested.
	sealed, binding = p.seal(built(t, message.GET, "", message.URIPath, "obs"))
	if _, b, verdict = p.open(sealed); verdict != Opened {
		t.Fatal(verdict)
	}
	if _, err := p.openResponse(p.respond(b, built(t, message.Content, "x", message.Observe, 1)), binding); !errors.Is(err, ErrResponse) {
		t.Errorf("a notification without a registration: %v", err)
	}
}

// No sequence number is used twice: not after a crash, and not by several processes with one file.
func TestSequenceNumbersOutliveTheProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "numbers")
	var mu sync.Mutex
	used := map[uint64]bool{}
	var group sync.WaitGroup
	for process := range 4 {
		c, err := New(withSalt.parameters(t, false), NewFileStore(path), 5)
		if err != nil {
			t.Fatal(err)
		}
		if c.Lost() != (process > 0) {
			t.Errorf("process %d: lost %v", process, c.Lost())
		}
		group.Go(func() {
			for range 13 {
				n, err := c.take()
				mu.Lock()
				if err != nil || used[n] {
					t.Errorf("number %d, %v, was used: %v", n, err, used[n])
				}
				used[n] = true
				mu.Unlock()
			}
		})
	}
	group.Wait()
	c, err := New(withSalt.parameters(t, false), nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	c.next = maxSequence
	if _, err := c.take(); err != nil {
		t.Error(err)
	}
	if _, err := c.take(); !errors.Is(err, ErrSpent) {
		t.Errorf("after the last number: %v", err)
	}
}

// A context whose window was lost takes the request that has the Echo, nothing older, and not that one twice (Appendix B.1.2).
func TestLostWindow(t *testing.T) {
	p := newPair(t, &withSalt)
	p.server.lost = true
	request := built(t, message.GET, "", message.URIPath, "x")
	old, _ := p.seal(request)
	echoed, _ := p.seal(request)
	next, _ := p.seal(request)
	if _, _, verdict := p.open(old); verdict != Unfresh {
		t.Errorf("before: %d", verdict)
	}
	_, b, verdict := p.open(echoed)
	if verdict != Unfresh || b.Echoed() != Opened {
		t.Fatalf("with the Echo: %d", verdict)
	}
	if b.Echoed() != Replayed {
		t.Error("the same request is accepted twice")
	}
	for name, step := range map[string]struct {
		sealed []byte
		want   Verdict
	}{"older": {old, Replayed}, "same": {echoed, Replayed}, "next": {next, Opened}} {
		if _, _, verdict := p.open(step.sealed); verdict != step.want {
			t.Errorf("%s: %d, want %d", name, verdict, step.want)
		}
	}
}

func TestOptionRefuses(t *testing.T) {
	for text, want := range map[string]bool{
		"": true, "00": false, "09": false, "0914": true, "091400": true, "06": false, "07aaaaaaaaaaaaaa": false, "2901": false, "8901": false, "4901": false,
		"19140837cbf3210017a2d3": true, "19140937cbf3210017a2d3": false, "1114": false, "110100": true, "11010001": false, "0100": true, "010000": false, "0501020304": false,
		"08": true, "1000": true, "18000102": true,
	} {
		if _, ok := ParseOption(unhex(t, text)); ok != want {
			t.Errorf("%q: %v", text, ok)
		}
	}
}

// Protecting and opening a request and its response allocates nothing.
func TestNothingIsAllocated(t *testing.T) {
	p := newPair(t, &withContext)
	request, response := built(t, message.GET, "", message.URIPath, "benchmark"), built(t, message.Content, "0123456789012345678901234567890123456789")
	round := newRound(t, p, request, response)
	round()
	if n := testing.AllocsPerRun(1000, round); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// newRound returns a round trip of a request and its response.
func newRound(t testing.TB, p *pair, request, response []byte) func() {
	a, b, c := make([]byte, 0, 2048), make([]byte, 0, 2048), make([]byte, 0, 2048)
	var m message.Message
	var ofClient, ofServer Binding
	return func() {
		sealed, err := p.codec.SealRequest(a, p.client, request, &ofClient)
		if err != nil || message.Parse(sealed, &m) != nil {
			t.Fatal(err)
		}
		if _, verdict := p.codec.OpenRequest(b, &m, p.table, &ofServer); verdict != Opened {
			t.Fatal(verdict)
		}
		if sealed, err = p.codec.SealResponse(c, response, &ofServer, false); err != nil || message.Parse(sealed, &m) != nil {
			t.Fatal(err)
		}
		if _, err = p.codec.OpenResponse(b, &m, &ofClient); err != nil {
			t.Fatal(err)
		}
	}
}

// A request and its response, protected and opened: four operations.
func BenchmarkRound(b *testing.B) {
	for _, size := range []int{40, 1024} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			p := newPair(b, &withContext)
			round := newRound(b, p, built(b, message.POST, "", message.URIPath, "benchmark"), built(b, message.Content, string(make([]byte, min(size, 900)))))
			b.ReportAllocs()
			for b.Loop() {
				round()
			}
		})
	}
}

func FuzzOption(f *testing.F) {
	for _, text := range []string{"", "0914", "091400", "19140837cbf3210017a2d3", "0100"} {
		f.Add(unhex(f, text))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		o, ok := ParseOption(value)
		if !ok {
			return
		}
		if len(o.PIV) > maxPIV || len(o.KID)+len(o.KIDContext) > len(value) {
			t.Fatalf("%+v of %x", o, value)
		}
		if got := o.append(nil); !bytes.Equal(got, value) {
			t.Fatalf("%x becomes %x", value, got)
		}
	})
}

// Any bytes: nothing panics, and nothing is opened but what the client has sealed.
func FuzzOpen(f *testing.F) {
	p := newPair(f, &withContext)
	sealed, _ := p.seal(built(f, message.GET, "", message.URIPath, "x"))
	observe, _ := p.seal(built(f, message.GET, "", message.Observe, 0, message.URIPath, "x"))
	f.Add(sealed)
	f.Add(observe)
	f.Add(built(f, message.POST, "0123456789", message.OSCORE, "\x09\x14"))
	f.Fuzz(func(t *testing.T, datagram []byte) {
		p := newPair(t, &withContext)
		var m message.Message
		if message.Parse(datagram, &m) != nil {
			return
		}
		var b Binding
		plain, verdict := p.codec.OpenRequest(make([]byte, 0, 2048), &m, p.table, &b)
		if verdict == Opened && !bytes.Equal(m.Payload, payloadOf(sealed)) && !bytes.Equal(m.Payload, payloadOf(observe)) {
			t.Fatalf("opened %x as %x", datagram, plain)
		}
		_, ofClient := p.seal(built(t, message.GET, "", message.URIPath, "x"))
		if m.Code.IsResponse() {
			if plain, err := p.codec.OpenResponse(make([]byte, 0, 2048), &m, ofClient); err == nil {
				t.Fatalf("opened %x as %x", datagram, plain)
			}
		}
	})
}

// payloadOf is the payload of a message.
func payloadOf(datagram []byte) []byte {
	var m message.Message
	_ = message.Parse(datagram, &m) // it was built by this test
	return m.Payload
}
