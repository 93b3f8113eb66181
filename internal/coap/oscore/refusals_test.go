package oscore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/keyerror"
)

// Parameters are refused under the key that is wrong, at their bounds and not before.
func TestParametersAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Parameters)
		key    string
	}{
		"secret of 15 bytes":     {func(p *Parameters) { p.MasterSecret = make([]byte, 15) }, "master_secret"},
		"secret of 16 bytes":     {func(p *Parameters) { p.MasterSecret = make([]byte, 16) }, ""},
		"sender of 7 bytes":      {func(p *Parameters) { p.SenderID = make([]byte, 7) }, ""},
		"sender of 8 bytes":      {func(p *Parameters) { p.SenderID = make([]byte, 8) }, "sender_id"},
		"recipient of 7 bytes":   {func(p *Parameters) { p.RecipientID = make([]byte, 7) }, ""},
		"recipient of 8 bytes":   {func(p *Parameters) { p.RecipientID = make([]byte, 8) }, "recipient_id"},
		"equal ids":              {func(p *Parameters) { p.RecipientID = p.SenderID }, "recipient_id"},
		"id context of 64 bytes": {func(p *Parameters) { p.IDContext = make([]byte, 64) }, ""},
		"id context of 65 bytes": {func(p *Parameters) { p.IDContext = make([]byte, 65) }, "id_context"},
	} {
		p := withSalt.parameters(t, false)
		c.change(&p)
		err := p.Validate()
		var wrong *keyerror.Error
		if errors.As(err, &wrong) != (c.key != "") || wrong != nil && wrong.Key != c.key {
			t.Errorf("%s: %v, want %q", name, err, c.key)
		}
		if _, failed := New(p, nil, 1); (failed == nil) != (c.key == "") {
			t.Errorf("%s: New: %v", name, failed)
		}
	}
	p := withSalt.parameters(t, false)
	p.Name = "device-7"
	c, err := New(p, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Parameters(); c.Name() != "device-7" || got.Name != "device-7" || got.MasterSecret != nil || got.MasterSalt != nil || !bytes.Equal(got.RecipientID, p.RecipientID) {
		t.Errorf("%s: %+v", c.Name(), got)
	}
}

// An ID context is derived with a length of one or of two bytes of CBOR: contexts on both sides of the limit differ, and work.
func TestLongIDContexts(t *testing.T) {
	for _, n := range []int{0, 23, 24, 64} {
		v := withSalt
		v.idContext = strings.Repeat("ab", n)
		p := newPair(t, &v)
		request := built(t, message.GET, "", message.URIPath, "x")
		sealed, _ := p.seal(request)
		if plain, _, verdict := p.open(sealed); verdict != Opened || !bytes.Equal(plain, request) {
			t.Errorf("%d bytes: verdict %d", n, verdict)
		}
	}
	if got := appendBytes(nil, make([]byte, 23))[:1]; !bytes.Equal(got, []byte{0x57}) {
		t.Errorf("23 bytes begin with %x", got)
	}
	if got := appendBytes(nil, make([]byte, 24))[:2]; !bytes.Equal(got, []byte{0x58, 24}) {
		t.Errorf("24 bytes begin with %x", got)
	}
}

// What cannot be protected is refused, and takes no sequence number.
func TestSealRefuses(t *testing.T) {
	p := newPair(t, &withSalt)
	out := make([]byte, 0, 2048)
	for what, plain := range map[string][]byte{
		"a response": built(t, message.Content, "x"), "nothing": nil, "half a message": {0x41, 1},
	} {
		if _, err := p.codec.SealRequest(out, p.client, plain, new(Binding)); !errors.Is(err, ErrMessage) {
			t.Errorf("%s as a request: %v", what, err)
		}
	}
	if p.client.next != 0 {
		t.Errorf("%d numbers were taken", p.client.next)
	}
	for id, name := range map[message.OptionID]string{message.OSCORE: "OSCORE", message.ProxyURI: "Proxy-Uri"} {
		if _, err := p.codec.SealRequest(out, p.client, built(t, message.GET, "", id, "x"), new(Binding)); !errors.Is(err, ErrMessage) {
			t.Errorf("a request with %s: %v", name, err)
		}
	}
	if _, err := p.codec.SealRequest(make([]byte, 0, 40), p.client, built(t, message.POST, strings.Repeat("x", 30)), new(Binding)); !errors.Is(err, message.ErrSpace) {
		t.Errorf("no room: %v", err)
	}
	if _, err := NewCodec(20).SealRequest(out, p.client, built(t, message.POST, strings.Repeat("x", 30)), new(Binding)); err == nil {
		t.Error("a message longer than the codec takes was sealed")
	}
	_, b, _ := p.open(first(p.seal(built(t, message.GET, "", message.URIPath, "x"))))
	if b.Context() != p.server {
		t.Errorf("context %v", b.Context())
	}
	for what, c := range map[string]struct {
		plain []byte
		b     *Binding
	}{
		"a request": {built(t, message.GET, ""), b}, "nothing": {nil, b}, "an answer to nothing": {built(t, message.Content, "x"), new(Binding)},
	} {
		if _, err := p.codec.SealResponse(out, c.plain, c.b, false); !errors.Is(err, ErrMessage) {
			t.Errorf("%s as a response: %v", what, err)
		}
	}
	p.client.next = maxSequence + 1
	if _, err := p.codec.SealRequest(out, p.client, built(t, message.GET, ""), new(Binding)); !errors.Is(err, ErrSpent) {
		t.Errorf("without a number: %v", err)
	}
	p.server.next = maxSequence + 1
	if _, err := p.codec.SealResponse(out, built(t, message.Content, "x"), b, true); !errors.Is(err, ErrSpent) {
		t.Errorf("an answer without a number: %v", err)
	}
}

func first[A, B any](a A, _ B) A { return a }

// What a request becomes when it is opened is a request again; a sealed response is none, and what is malformed is named so.
func TestOpenRequestRefuses(t *testing.T) {
	p := newPair(t, &withSalt)
	ofResponse := sealedAs(t, p, built(t, message.Content, "state"), message.POST)
	if _, _, verdict := p.open(ofResponse); verdict != Forged {
		t.Errorf("a sealed response as a request: %d", verdict)
	}
	for what, c := range map[string]struct {
		request []byte
		want    Verdict
	}{
		"no option value":       {built(t, message.POST, "0123456789", message.OSCORE, ""), Malformed},
		"9 bytes are forged":    {built(t, message.POST, "012345678", message.OSCORE, "\x09\x14"), Forged},
		"8 bytes are malformed": {built(t, message.POST, "01234567", message.OSCORE, "\x09\x14"), Malformed},
		"a long kid":            {built(t, message.POST, "0123456789", message.OSCORE, "\x09\x1412345678"), Unknown},
		"a kid context":         {built(t, message.POST, "0123456789", message.OSCORE, "\x19\x14\x01c"), Unknown},
	} {
		plain, b, verdict := p.open(c.request)
		if verdict != c.want || len(plain) != 0 && verdict != Opened {
			t.Errorf("%s: verdict %d, want %d; %x", what, verdict, c.want, plain)
		}
		if c.want != Forged && b.Context() != nil {
			t.Errorf("%s: the binding is set", what)
		}
	}
	var m message.Message
	if err := message.Parse(built(t, message.POST, "0123456789", message.OSCORE, "\x09\x14"), &m); err != nil {
		t.Fatal(err)
	}
	if _, verdict := p.codec.OpenRequest(nil, &m, nil, new(Binding)); verdict != Unknown {
		t.Errorf("without contexts: %d", verdict)
	}
	small := &pair{t: t, codec: NewCodec(16), client: p.client, server: p.server, table: p.table}
	sealed, _ := p.seal(built(t, message.POST, strings.Repeat("x", 30)))
	if _, _, verdict := small.open(sealed); verdict != Forged {
		t.Errorf("a request longer than the codec takes: %d", verdict)
	}
	sealed, _ = p.seal(built(t, message.POST, "x", message.URIPath, "path"))
	if err := message.Parse(sealed, &m); err != nil {
		t.Fatal(err)
	}
	if _, verdict := p.codec.OpenRequest(make([]byte, 0, 8), &m, p.table, new(Binding)); verdict != Forged {
		t.Errorf("no room for the plain request: %d", verdict)
	}
	if _, _, verdict := p.open(sealed); verdict != Opened {
		t.Errorf("the same with room: %d", verdict)
	}
}

// sealedAs is a message sealed by the client under an outer code, whatever it is.
func sealedAs(t *testing.T, p *pair, plain []byte, code message.Code) []byte {
	t.Helper()
	if err := message.Parse(plain, &p.codec.message); err != nil {
		t.Fatal(err)
	}
	sealed, err := p.codec.sealRequest(make([]byte, 0, 2048), p.client, p.client.next, new(Binding))
	if err != nil {
		t.Fatal(err)
	}
	p.client.next++
	sealed[1] = byte(code)
	return sealed
}

// A response must name the kid of the server, if any, and be a response inside.
func TestOpenResponseRefuses(t *testing.T) {
	p := newPair(t, &withSalt)
	sealed, ofClient := p.seal(built(t, message.GET, "", message.URIPath, "x"))
	_, ofServer, verdict := p.open(sealed)
	if verdict != Opened {
		t.Fatal(verdict)
	}
	for what, option := range map[string]string{"a reserved bit": "\x81\x01", "another kid": "\x09\x01other"} {
		if _, err := p.openResponse(built(t, message.Changed, "0123456789", message.OSCORE, option), ofClient); !errors.Is(err, ErrResponse) {
			t.Errorf("%s: %v", what, err)
		}
	}
	response := p.respond(ofServer, built(t, message.Content, "state"))
	if _, err := p.openResponse(response, new(Binding)); !errors.Is(err, ErrResponse) {
		t.Errorf("a response to nothing: %v", err)
	}
	var o Option
	o.PIV, o.KID, o.HasKID = appendPIV(nil, 3), p.server.parameters.SenderID, true
	if err := message.Parse(built(t, message.Content, "with a kid"), &p.codec.message); err != nil {
		t.Fatal(err)
	}
	p.codec.nonce = p.server.nonce(o.KID, o.PIV)
	named, err := p.codec.seal(make([]byte, 0, 2048), message.Changed, ofServer, &o)
	if err != nil {
		t.Fatal(err)
	}
	named = bytes.Clone(named)
	if plain, err := p.openResponse(named, ofClient); err != nil || string(parsed(t, plain).Payload) != "with a kid" {
		t.Errorf("a response with the kid of the server: %v", err)
	}
	if plain, err := p.openResponse(response, ofClient); err != nil || string(parsed(t, plain).Payload) != "state" {
		t.Errorf("the response itself: %v", err)
	}
	if err := message.Parse(built(t, message.GET, "a request inside"), &p.codec.message); err != nil {
		t.Fatal(err)
	}
	p.codec.nonce = p.server.nonce(ofServer.kid[:ofServer.kids], ofServer.piv[:ofServer.pivs])
	inner, err := p.codec.seal(make([]byte, 0, 2048), message.Changed, ofServer, &Option{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.openResponse(bytes.Clone(inner), ofClient); !errors.Is(err, ErrResponse) {
		t.Errorf("a request as a response: %v", err)
	}
}

// The value of Observe of a notification is the last bytes of its Partial IV, and it rises.
func TestObserveOfNotifications(t *testing.T) {
	p := newPair(t, &withSalt)
	p.server.next = 0x1ff
	sealed, ofClient := p.seal(built(t, message.GET, "", message.Observe, 0, message.URIPath, "x"))
	_, ofServer, verdict := p.open(sealed)
	if verdict != Opened {
		t.Fatal(verdict)
	}
	for i, want := range []uint32{0, 0x200, 0x201} {
		plain, err := p.openResponse(p.respond(ofServer, built(t, message.Content, "", message.Observe, 1)), ofClient)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := parsed(t, plain).Uint(message.Observe); !ok || got != want {
			t.Errorf("notification %d: Observe %#x, %v, want %#x", i, got, ok, want)
		}
	}
	for n, want := range map[uint32]string{0: "", 1: "01", 0xff: "ff", 0x100: "0100", 0x10000: "010000", 0xabcdef: "abcdef"} {
		if got := fmt.Sprintf("%x", appendUint(nil, n)); got != want {
			t.Errorf("%#x: %s, want %s", n, got, want)
		}
	}
}

// A No-Response option is shown to proxies only if it suppresses all answers (RFC 8613 section 4.1.3.6).
func TestNoResponseOutside(t *testing.T) {
	p := newPair(t, &withSalt)
	for value, outside := range map[int]bool{26: true, 2: false, 24: false} {
		sealed, _ := p.seal(built(t, message.POST, "x", message.NoResponse, value))
		if _, ok := parsed(t, sealed).Option(message.NoResponse); ok != outside {
			t.Errorf("No-Response %d is outside: %v", value, ok)
		}
	}
	for text, want := range map[string]bool{"\x1a": true, "": false, "\x1a\x1a": false, "\x02": false} {
		if suppressesAll([]byte(text)) != want {
			t.Errorf("%x suppresses all: %v", text, !want)
		}
	}
}

// Contexts are found by kid, and where several have it by the kid context; a pair of both must be unique.
func TestTable(t *testing.T) {
	of := func(name, recipient, idContext string) *Context {
		p := Parameters{Name: name, MasterSecret: make([]byte, 16), SenderID: []byte("s"), RecipientID: []byte(recipient)}
		if idContext != "" {
			p.IDContext = []byte(idContext)
		}
		c, err := New(p, nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, b, c, alone := of("a", "same", ""), of("b", "same", "1"), of("c", "same", "2"), of("alone", "1234567", "64"+strings.Repeat("x", 62))
	table, err := NewTable(a, b, c, alone)
	if err != nil {
		t.Fatal(err)
	}
	for what, f := range map[string]struct {
		o    Option
		want *Context
	}{
		"a kid of several":     {Option{KID: []byte("same")}, nil},
		"with the empty one":   {Option{KID: []byte("same"), HasContext: true}, a},
		"with the first":       {Option{KID: []byte("same"), KIDContext: []byte("1"), HasContext: true}, b},
		"with the second":      {Option{KID: []byte("same"), KIDContext: []byte("2"), HasContext: true}, c},
		"with another":         {Option{KID: []byte("same"), KIDContext: []byte("3"), HasContext: true}, nil},
		"a kid of one":         {Option{KID: []byte("1234567")}, alone},
		"with its context":     {Option{KID: []byte("1234567"), KIDContext: alone.parameters.IDContext, HasContext: true}, alone},
		"a longer kid":         {Option{KID: []byte("12345678")}, nil},
		"a longer kid context": {Option{KID: []byte("1234567"), KIDContext: make([]byte, 65), HasContext: true}, nil},
	} {
		if got := table.find(&f.o); got != f.want {
			t.Errorf("%s: %v", what, got)
		}
	}
	if got, err := table.Named("c"); got != c || err != nil {
		t.Errorf("c: %v, %v", got, err)
	}
	if got, err := table.Named("d"); got != nil || err == nil {
		t.Errorf("d: %v, %v", got, err)
	}
	if got := table.Contexts(); len(got) != 4 || (*Table)(nil).Contexts() != nil {
		t.Errorf("%d contexts", len(got))
	}
	if _, err := NewTable(b, a, of("again", "same", "1")); err == nil || !strings.Contains(err.Error(), `contexts[2]: recipient_id and id_context are those of "b", too`) {
		t.Errorf("%v", err)
	}
	many := make([]*Context, MaxContexts+1)
	if _, err := NewTable(many...); err == nil || !strings.Contains(err.Error(), "65537 contexts, at most 65536") {
		t.Errorf("%v", err)
	}
}

// Numbers are reserved a step at a time; a store that goes back, or fails, ends the context, and no number is used again.
func TestReservation(t *testing.T) {
	s := &memoryStore{next: 100}
	c, err := New(withSalt.parameters(t, false), s, 3)
	if err != nil || s.reservations != 1 {
		t.Fatalf("%v, %d reservations", err, s.reservations)
	}
	for i, want := range []uint64{100, 101, 102, 103, 104, 105, 106} {
		if got, err := c.take(); got != want || err != nil {
			t.Errorf("number %d is %d, %v", i, got, err)
		}
	}
	if s.reservations != 3 || !c.Lost() {
		t.Errorf("%d reservations, lost %v", s.reservations, c.Lost())
	}
	if s.id != c.id || len(c.id) != 16 {
		t.Errorf("the store knows the context as %q", s.id)
	}
	s.next = 104
	for c.next < c.reserved {
		if _, err := c.take(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.take(); err == nil || !strings.Contains(err.Error(), "is below 109, which was used") {
		t.Errorf("a store that went back: %v", err)
	}
	s.err = errors.New("disk full")
	if _, err := c.take(); !errors.Is(err, s.err) {
		t.Errorf("a store that fails: %v", err)
	}
	if _, err := New(withSalt.parameters(t, false), s, 1); !errors.Is(err, s.err) {
		t.Errorf("New with it: %v", err)
	}
	other, err := New(withoutSalt.parameters(t, false), &memoryStore{}, 0)
	if err != nil || other.Lost() || other.id == c.id {
		t.Errorf("%v, lost %v, %s", err, other.Lost(), other.id)
	}
}

// memoryStore is a Store in memory.
type memoryStore struct {
	next         uint64
	reservations int
	id           string
	err          error
}

func (s *memoryStore) Reserve(id string, count uint64) (uint64, error) {
	if s.err != nil {
		return 0, s.err
	}
	s.id, s.reservations = id, s.reservations+1
	s.next += count
	return s.next - count, nil
}

// A state file that cannot be read, written or trusted is an error that names it, and stays as it is.
func TestFileStoreRefuses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "numbers")
	s := NewFileStore(path)
	if n, err := s.Reserve("a", 5); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := s.Reserve("b", 7); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := s.Reserve("a", 5); n != 5 || err != nil {
		t.Fatal(n, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v: want the file and its lock", entries, err)
	}
	for text, want := range map[string]string{
		"{": "a sequence number must not be used twice", fmt.Sprintf(`{"a": %d}`, uint64(maxSequence+1)): "agree on a new master secret",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Reserve("a", 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			t.Errorf("%s became %s, %v", text, now, err)
		}
	}
	if err := os.WriteFile(path, fmt.Appendf(nil, `{"a": %d}`, uint64(maxSequence)), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Reserve("a", 1); n != maxSequence || err != nil {
		t.Errorf("the last number: %d, %v", n, err)
	}
	for what, path := range map[string]string{"a file as folder": filepath.Join(path, "x"), "a folder as file": dir, "a folder as lock": filepath.Join(dir, "locked")} {
		if what == "a folder as lock" {
			if err := os.Mkdir(path+".lock", 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := NewFileStore(path).Reserve("a", 1); err == nil || !strings.Contains(err.Error(), "oscore: state file:") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Requests answered in another order than they came, by a codec that does other work in between: each answer opens with its own
// request alone, and no nonce is used twice with the key of the server.
func TestAnswersInAnotherOrder(t *testing.T) {
	v := withoutSalt
	v.sender = "0a1b"
	p := newPair(t, &v)
	nonces := map[string]bool{}
	var ofClient, ofServer []*Binding
	for i := range 3 {
		sealed, b := p.seal(built(t, message.GET, fmt.Sprint("request ", i), message.Observe, 0, message.URIPath, "x"))
		_, s, verdict := p.open(sealed)
		if verdict != Opened {
			t.Fatal(verdict)
		}
		ofClient, ofServer = append(ofClient, b), append(ofServer, s)
	}
	for _, i := range []int{1, 2, 0, 1, 0} {
		answer := p.respond(ofServer[i], built(t, message.Content, fmt.Sprint("for ", i), message.Observe, 0x123456))
		if nonces[string(p.codec.nonce[:])] {
			t.Errorf("an answer to request %d uses a nonce again", i)
		}
		nonces[string(p.codec.nonce[:])] = true
		if _, err := p.openResponse(answer, &Binding{context: p.client, kids: 2, observe: true}); !errors.Is(err, ErrResponse) {
			t.Errorf("an answer to request %d opens with another one: %v", i, err)
		}
		plain, err := p.openResponse(answer, ofClient[i])
		if err != nil || string(parsed(t, plain).Payload) != fmt.Sprint("for ", i) {
			t.Errorf("an answer to request %d: %v", i, err)
		}
	}
	// Of two answers of which the second has a number of its own, both have another nonce; so has a third one.
	own, err := p.codec.SealResponse(make([]byte, 0, 2048), built(t, message.Content, "own"), ofServer[2], true)
	if err != nil || len(own) == 0 || nonces[string(p.codec.nonce[:])] {
		t.Errorf("%v, nonce used before: %v", err, nonces[string(p.codec.nonce[:])])
	}
	nonces[string(p.codec.nonce[:])] = true
	p.respond(ofServer[2], built(t, message.Content, "third"))
	if nonces[string(p.codec.nonce[:])] {
		t.Error("the nonce of the request is used after an answer that had used it")
	}
}

// Inside of a protected notification Observe is empty, for its value outside is for proxies (RFC 8613 section 4.1.3.5.2).
func TestObserveInsideIsEmpty(t *testing.T) {
	p := newPair(t, &withSalt)
	sealed, b := p.seal(built(t, message.GET, "", message.Observe, 0, message.URIPath, "x"))
	if _, ofServer, verdict := p.open(sealed); verdict != Opened {
		t.Fatal(verdict)
	} else if plain, err := p.openResponse(p.respond(ofServer, built(t, message.Content, "", message.Observe, 0x123456)), b); err != nil || len(plain) == 0 {
		t.Fatal(err)
	}
	if value, ok := p.codec.inner.Option(message.Observe); !ok || len(value) != 0 {
		t.Errorf("Observe inside has %x, %v", value, ok)
	}
}
