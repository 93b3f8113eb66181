package oscore

import (
	"bytes"
	"testing"

	"github.com/weir-lb/weir/internal/coap/message"
)

// renewing is the server's table and a client that goes through Appendix B.2 of RFC 8613 with it.
type renewing struct {
	t      testing.TB
	codec  *Codec
	base   Parameters // of the client
	server *Context
	table  *Table
}

func newRenewing(t testing.TB) *renewing {
	t.Helper()
	r := &renewing{t: t, codec: NewCodec(2048), base: Parameters{
		Name: "test", MasterSecret: bytes.Repeat([]byte{7}, 16), MasterSalt: []byte("salt"), IDContext: []byte("original"),
		SenderID: []byte{1}, RecipientID: []byte{2}, Renewable: true,
	}}
	p := r.base
	p.SenderID, p.RecipientID = p.RecipientID, p.SenderID
	var err error
	if r.server, err = New(p, nil, 1); err != nil {
		t.Fatal(err)
	}
	if r.table, err = NewTable(r.server); err != nil {
		t.Fatal(err)
	}
	return r
}

// context is the client's one with an ID context.
func (r *renewing) context(id ...[]byte) *Context {
	r.t.Helper()
	p := r.base
	p.IDContext, p.Renewable = bytes.Join(id, nil), false
	c, err := New(p, nil, 1)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// seal protects a GET with a context; kidContext is the one in the option, nil: none.
func (r *renewing) seal(c *Context, kidContext []byte) ([]byte, *Binding) {
	r.t.Helper()
	c.parameters.IDContext = kidContext // the keys are derived already
	b := new(Binding)
	sealed, err := r.codec.SealRequest(make([]byte, 0, 2048), c, built(r.t, message.GET, "", message.URIPath, "oscore"), b)
	if err != nil {
		r.t.Fatal(err)
	}
	return sealed, b
}

func (r *renewing) open(sealed []byte) (*Binding, Verdict) {
	r.t.Helper()
	var m message.Message
	if err := message.Parse(sealed, &m); err != nil {
		r.t.Fatal(err)
	}
	b := new(Binding)
	_, verdict := r.codec.OpenRequest(make([]byte, 0, 2048), &m, r.table, b)
	return b, verdict
}

func bstr(b []byte) []byte { return appendBytes(nil, b) }

// begin sends request 1 and returns R2 of response 1, which it verifies with the context of R2 || ID1 and the nonce of the request.
func (r *renewing) begin(id1 []byte) (r2 []byte) {
	r.t.Helper()
	first := r.context(id1)
	sealed, own := r.seal(first, bstr(id1))
	b, verdict := r.open(sealed)
	if verdict != Renewing {
		r.t.Fatalf("request 1: verdict %d", verdict)
	}
	response, err := r.codec.SealRenewal(make([]byte, 0, 2048), built(r.t, message.Unauthorized, ""), b)
	if err != nil {
		r.t.Fatal(err)
	}
	var m message.Message
	if err := message.Parse(response, &m); err != nil {
		r.t.Fatal(err)
	}
	value, _ := m.Option(message.OSCORE)
	o, ok := ParseOption(value)
	if !ok || !o.HasContext || len(o.KIDContext) != 17 || o.KIDContext[0] != 0x50 {
		r.t.Fatalf("option %x of response 1, want R2 of 16 bytes as CBOR byte string", value)
	}
	r2 = bytes.Clone(o.KIDContext[1:])
	second := r.context(r2, id1)
	second.iv = first.iv // the nonce is that of the request
	own.context = second
	inner, err := r.codec.OpenResponse(make([]byte, 0, 2048), &m, own)
	if err != nil {
		r.t.Fatalf("response 1: %v", err)
	}
	if err := message.Parse(inner, &m); err != nil || m.Code != message.Unauthorized {
		r.t.Fatalf("response 1: %s, %v", m.Code, err)
	}
	return r2
}

// A client without a usable context agrees on a new one in two exchanges, and goes on with it, with and without a kid context.
func TestContextIsRenewed(t *testing.T) {
	r := newRenewing(t)
	for round, id1 := range [][]byte{[]byte("firstID1"), []byte("secondID"), []byte("thirdID1")} {
		r2, r3 := r.begin(id1), []byte("random R3")[:8]
		c := r.context(r2, r3)
		for i, kidContext := range [][]byte{bstr(append(bytes.Clone(r2), r3...)), nil, nil} {
			sealed, own := r.seal(c, kidContext)
			b, verdict := r.open(sealed)
			if verdict != Opened {
				t.Fatalf("round %d, request %d with the new context: verdict %d", round, i, verdict)
			}
			if b.Context() == r.server {
				t.Fatal("opened with the old context")
			}
			response, err := r.codec.SealResponse(make([]byte, 0, 2048), built(t, message.Content, "state"), b, false)
			if err != nil {
				t.Fatal(err)
			}
			var m message.Message
			if err := message.Parse(response, &m); err != nil {
				t.Fatal(err)
			}
			if value, _ := m.Option(message.OSCORE); len(value) != 0 {
				t.Errorf("option %x of a response with the new context", value)
			}
			if _, err := r.codec.OpenResponse(make([]byte, 0, 2048), &m, own); err != nil {
				t.Errorf("round %d, response %d: %v", round, i, err)
			}
			if _, again := r.open(sealed); again != Replayed {
				t.Errorf("round %d, request %d again: verdict %d", round, i, again)
			}
		}
	}
	// The context that both ends were given still counts.
	if sealed, _ := r.seal(r.context([]byte("original")), []byte("original")); true {
		if _, verdict := r.open(sealed); verdict != Opened {
			t.Errorf("original context: verdict %d", verdict)
		}
	}
}

// Several clients with one secret, as those of the public test context, do not end each other's contexts.
func TestRenewedContextsOfSeveralClients(t *testing.T) {
	r := newRenewing(t)
	var all []*Context
	for i := range maxRenewed {
		id1 := []byte{'c', 'l', 'i', 'e', 'n', 't', ' ', byte('0' + i)}
		r2 := r.begin(id1)
		c := r.context(r2, id1)
		sealed, _ := r.seal(c, bstr(append(bytes.Clone(r2), id1...)))
		if _, verdict := r.open(sealed); verdict != Opened {
			t.Fatalf("client %d: verdict %d", i, verdict)
		}
		all = append(all, c)
	}
	for i, c := range all {
		sealed, _ := r.seal(c, nil)
		if _, verdict := r.open(sealed); verdict != Opened {
			t.Errorf("client %d: verdict %d", i, verdict)
		}
	}
	r2 := r.begin([]byte("one more"))
	sealed, _ := r.seal(r.context(r2, []byte("one more")), bstr(append(bytes.Clone(r2), "one more"...)))
	if _, verdict := r.open(sealed); verdict != Opened {
		t.Fatalf("one more client: verdict %d", verdict)
	}
	if sealed, _ := r.seal(all[0], nil); true {
		if _, verdict := r.open(sealed); verdict != Forged {
			t.Errorf("the oldest of too many: verdict %d", verdict)
		}
	}
	if n := len(*r.server.renewal.contexts.Load()); n != maxRenewed {
		t.Errorf("%d contexts, want %d", n, maxRenewed)
	}
}

// An eavesdropper who repeats requests 1 and 2 gets nothing executed: not while the context counts, not after newer ones have
// taken its place, and not after a restart, which draws a new key.
func TestRenewalIsNotReplayed(t *testing.T) {
	r := newRenewing(t)
	id1 := []byte("firstID1")
	first, _ := r.seal(r.context(id1), bstr(id1))
	r2 := r.begin(id1)
	second, _ := r.seal(r.context(r2, []byte("randomR3")), bstr(append(bytes.Clone(r2), "randomR3"...)))
	if _, verdict := r.open(second); verdict != Opened {
		t.Fatalf("verdict %d", verdict)
	}
	for i := range maxRenewed + 1 {
		id := []byte{'c', 'l', 'i', 'e', 'n', 't', ' ', byte('0' + i)}
		newer := r.begin(id)
		sealed, _ := r.seal(r.context(newer, id), bstr(append(bytes.Clone(newer), id...)))
		if _, verdict := r.open(sealed); verdict != Opened {
			t.Fatalf("verdict %d", verdict)
		}
		for what, request := range map[string][]byte{"request 1": first, "request 2": second} {
			if _, verdict := r.open(request); verdict == Opened {
				t.Errorf("%s again, after %d newer contexts: executed", what, i+1)
			}
		}
	}
	restarted := newRenewing(t)
	for what, request := range map[string][]byte{"request 1": first, "request 2": second} {
		if _, verdict := restarted.open(request); verdict == Opened {
			t.Errorf("%s after a restart: executed", what)
		}
	}
}

// What does not verify gets no new context, and no reply that a peer without the secret could use.
func TestRenewalOfStrangers(t *testing.T) {
	r := newRenewing(t)
	sealed := func(secret byte, id, kidContext []byte) []byte {
		other := newRenewing(t)
		other.base.MasterSecret = bytes.Repeat([]byte{secret}, 16)
		wire, _ := other.seal(other.context(id), kidContext)
		return wire
	}
	id := []byte("stranger")
	for what, c := range map[string]struct {
		wire []byte
		want Verdict
	}{
		"another secret":              {sealed(8, id, bstr(id)), Forged},
		"no CBOR byte string":         {sealed(7, id, id), Unknown},
		"a byte string that is cut":   {sealed(7, id, bstr(id)[:5]), Unknown},
		"bytes behind it":             {sealed(7, id, append(bstr(id), 0)), Unknown},
		"an ID1 that can be guessed":  {sealed(7, id[:7], bstr(id[:7])), Unknown},
		"an ID1 that is too long":     {sealed(7, bytes.Repeat(id, 7)[:49], bstr(bytes.Repeat(id, 7)[:49])), Unknown},
		"another ID1":                 {sealed(7, []byte("another1"), bstr(id)), Forged},
		"a length that is indefinite": {sealed(7, id, append([]byte{0x5f}, id...)), Unknown},
	} {
		if _, verdict := r.open(c.wire); verdict != c.want {
			t.Errorf("%s: verdict %d, want %d", what, verdict, c.want)
		}
	}
	plain := newRenewing(t)
	plain.server.renewal = nil
	if _, verdict := plain.open(sealed(7, id, bstr(id))); verdict != Unknown {
		t.Errorf("a context that is not renewable: verdict %d", verdict)
	}
}

// Any kid context and ciphertext: nothing panics, nothing is executed, and no context begins to count.
func FuzzRenewal(f *testing.F) {
	r := newRenewing(f)
	id := []byte("firstID1")
	r2 := r.begin(id)
	for _, kidContext := range [][]byte{nil, id, bstr(id), bstr(append(bytes.Clone(r2), "randomR3"...)), {0x58}, {0x40}, bytes.Repeat([]byte{0x57}, 24)} {
		f.Add(kidContext, []byte("0123456789abcdef"))
	}
	f.Fuzz(func(t *testing.T, kidContext, ciphertext []byte) {
		if len(kidContext) > 255 || len(ciphertext) > 512 { // what built has room for
			return
		}
		value := (&Option{PIV: []byte{0}, KID: []byte{1}, HasKID: true, KIDContext: kidContext, HasContext: kidContext != nil}).append(nil)
		var m message.Message
		if message.Parse(built(t, message.POST, string(ciphertext), message.OSCORE, string(value)), &m) != nil {
			return
		}
		if _, verdict := r.codec.OpenRequest(make([]byte, 0, 2048), &m, r.table, new(Binding)); verdict == Opened || verdict == Renewing {
			t.Fatalf("kid context %x: verdict %d", kidContext, verdict)
		}
		if len(*r.server.renewal.contexts.Load()) != 0 {
			t.Fatal("a context counts")
		}
	})
}
