package message

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// The registered options: name, lengths, and whether they may be repeated (RFC 7252 table 4, 7641, 7959, 7967, 8613, 8768, 9175).
var registered = []struct {
	id         OptionID
	name       string
	min, max   int
	repeatable bool
}{
	{1, "If-Match", 0, 8, true},
	{3, "Uri-Host", 1, 255, false},
	{4, "ETag", 1, 8, true},
	{5, "If-None-Match", 0, 0, false},
	{6, "Observe", 0, 3, false},
	{7, "Uri-Port", 0, 2, false},
	{8, "Location-Path", 0, 255, true},
	{9, "Object-Security", 0, 255, false},
	{11, "Uri-Path", 0, 255, true},
	{12, "Content-Format", 0, 2, false},
	{14, "Max-Age", 0, 4, false},
	{15, "Uri-Query", 0, 255, true},
	{16, "Hop-Limit", 1, 1, false},
	{17, "Accept", 0, 2, false},
	{20, "Location-Query", 0, 255, true},
	{23, "Block2", 0, 3, false},
	{27, "Block1", 0, 3, false},
	{28, "Size2", 0, 4, false},
	{35, "Proxy-Uri", 1, 1034, false},
	{39, "Proxy-Scheme", 1, 255, false},
	{60, "Size1", 0, 4, false},
	{252, "Echo", 1, 40, false},
	{258, "No-Response", 0, 1, false},
	{292, "Request-Tag", 0, 8, true},
}

// rejected reports whether a request with these values of one option must be rejected by one who knows every option.
func rejected(t *testing.T, id OptionID, lengths ...int) bool {
	t.Helper()
	var b Builder
	b.Reset(make([]byte, 0, 4096), Con, GET, 1, nil)
	for _, n := range lengths {
		b.Option(id, make([]byte, n))
	}
	wire, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var m Message
	if err := Parse(wire, &m); err != nil {
		t.Fatal(err)
	}
	bad, is := m.BadOption(func(OptionID) bool { return true })
	if is != (bad != 0) || (is && bad != id) {
		t.Errorf("%s: %s is bad: %t", id, bad, is)
	}
	return is
}

func TestRegisteredOptions(t *testing.T) {
	for _, r := range registered {
		if r.id.String() != r.name {
			t.Errorf("option %d is %q, want %q", int(r.id), r.id, r.name)
		}
		critical := int(r.id)%2 == 1
		for length, wrong := range map[int]bool{r.min - 1: true, r.min: false, r.max: false, r.max + 1: true} {
			if length >= 0 && rejected(t, r.id, length) != (critical && wrong) {
				t.Errorf("%s of %d bytes: rejected is %t", r.name, length, !(critical && wrong))
			}
		}
		if got, want := rejected(t, r.id, r.min, r.min), critical && !r.repeatable; got != want {
			t.Errorf("%s twice: rejected is %t", r.name, got)
		}
	}
	if got := OptionID(65000).String(); got != "Option-65000" {
		t.Errorf("an unregistered option is %q", got)
	}
}

func TestRegisteredCodes(t *testing.T) {
	names := map[string]string{
		"0.00": "EMPTY", "0.01": "GET", "0.02": "POST", "0.03": "PUT", "0.04": "DELETE", "0.05": "FETCH", "0.06": "PATCH", "0.07": "IPATCH",
		"2.01": "CREATED", "2.02": "DELETED", "2.03": "VALID", "2.04": "CHANGED", "2.05": "CONTENT", "2.31": "CONTINUE",
		"4.00": "BAD REQUEST", "4.01": "UNAUTHORIZED", "4.02": "BAD OPTION", "4.03": "FORBIDDEN", "4.04": "NOT FOUND", "4.05": "METHOD NOT ALLOWED",
		"4.06": "NOT ACCEPTABLE", "4.08": "REQUEST ENTITY INCOMPLETE", "4.09": "CONFLICT", "4.12": "PRECONDITION FAILED",
		"4.13": "REQUEST ENTITY TOO LARGE", "4.15": "UNSUPPORTED CONTENT FORMAT", "4.22": "UNPROCESSABLE ENTITY", "4.29": "TOO MANY REQUESTS",
		"5.00": "INTERNAL SERVER ERROR", "5.01": "NOT IMPLEMENTED", "5.02": "BAD GATEWAY", "5.03": "SERVICE UNAVAILABLE", "5.04": "GATEWAY TIMEOUT",
		"5.05": "PROXYING NOT SUPPORTED", "5.08": "HOP LIMIT REACHED",
	}
	for c := range 256 {
		code := Code(c)
		want, ok := names[code.String()]
		if !ok {
			want = "UNKNOWN"
		}
		if code.Name() != want {
			t.Errorf("%s is %q, want %q", code, code.Name(), want)
		}
		class := code.String()[0]
		if code.IsRequest() != (class == '0' && c != 0) || code.IsResponse() != strings.ContainsRune("245", rune(class)) {
			t.Errorf("%s: request %t, response %t", code, code.IsRequest(), code.IsResponse())
		}
		if code.IsSafe() != (want == "GET" || want == "FETCH") {
			t.Errorf("%s: safe is %t", code, code.IsSafe())
		}
		method, found := ParseMethod(strings.ToLower(want))
		if class == '0' && c > 0 && c < 8 {
			if !found || method != code {
				t.Errorf("%s: method %s, %t", want, method, found)
			}
		} else if found && want != "DELETED" {
			t.Errorf("%s is method %s", want, method)
		}
	}
	// 'Z' and 'z' are letters, what is next to the letters is not.
	for _, name := range []string{"", "GE", "GETS", "g`t", "{et", "G\x25T", "PUT@", "get\x00"} {
		if code, ok := ParseMethod(name); ok {
			t.Errorf("%q is method %s", name, code)
		}
	}
	if !equalFold("azAZ", "AZAZ") || equalFold("`{", "@[") {
		t.Error("letters are not compared as they should be")
	}
}

func TestTypeAndFormatNames(t *testing.T) {
	for i, want := range []string{"CON", "NON", "ACK", "RST"} {
		if got := Type(i).String(); got != want {
			t.Errorf("type %d is %q, want %q", i, got, want)
		}
	}
	for format, want := range map[Format]string{
		0: "text/plain", 40: "application/link-format", 41: "application/xml", 42: "application/octet-stream", 50: "application/json",
		60: "application/cbor", 11542: "11542",
	} {
		if got := format.String(); got != want {
			t.Errorf("format %d is %q, want %q", uint16(format), got, want)
		}
	}
}

// A Message that is used again has nothing left of what it held before.
func TestParseOverwrites(t *testing.T) {
	var m Message
	if err := Parse(benchmarkRequest(t), &m); err != nil {
		t.Fatal(err)
	}
	if err := Parse([]byte{1<<6 | byte(Non)<<4, byte(GET), 0, 7}, &m); err != nil {
		t.Fatal(err)
	}
	if _, ok := m.Option(URIPath); ok || len(m.Payload) != 0 || len(m.Token) != 0 || m.ID != 7 || m.Type != Non {
		t.Errorf("%+v", m)
	}
	if err := Parse(nil, &m); !errors.Is(err, ErrHeader) || m.ID != 0 {
		t.Errorf("error %v, %+v", err, m)
	}
}

// An option of number 64 and above is found as one below is; a value beyond the range of formats is none.
func TestOptionsAreFound(t *testing.T) {
	var b Builder
	b.Reset(make([]byte, 0, 256), Con, GET, 1, nil)
	b.Uint(ContentFormat, 0xffff)
	b.Uint(Accept, 0x10000)
	b.Text(Echo, "first")
	b.Text(Echo, "second")
	wire, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var m Message
	if err := Parse(wire, &m); err != nil {
		t.Fatal(err)
	}
	if value, ok := m.Option(Echo); !ok || string(value) != "first" {
		t.Errorf("%q, %t", value, ok)
	}
	for _, absent := range []OptionID{URIPath, 63, 64, NoResponse} {
		if value, ok := m.Option(absent); ok {
			t.Errorf("%s is there: %x", absent, value)
		}
	}
	if f, ok := m.Format(ContentFormat); !ok || f != 0xffff {
		t.Errorf("format %d, %t", f, ok)
	}
	if _, ok := m.Format(Accept); ok {
		t.Error("65536 is a format")
	}
	if _, ok := m.Uint(Size1); ok {
		t.Error("an absent option is a number")
	}
}

// What a Builder refuses, and the largest that it takes.
func TestBuilderRefuses(t *testing.T) {
	const longest = 65804
	for name, c := range map[string]struct {
		build func(*Builder)
		want  error
	}{
		"token":                  {func(b *Builder) { b.Reset(b.buf[:0], Con, GET, 1, make([]byte, longest)) }, nil},
		"token too long":         {func(b *Builder) { b.Reset(b.buf[:0], Con, GET, 1, make([]byte, longest+1)) }, ErrToken},
		"option":                 {func(b *Builder) { b.Option(65000, make([]byte, longest)) }, nil},
		"option too long":        {func(b *Builder) { b.Option(65000, make([]byte, longest+1)) }, ErrOrder},
		"two payloads":           {func(b *Builder) { b.Payload([]byte("a")); b.Payload([]byte("b")) }, ErrOrder},
		"two payloads, one none": {func(b *Builder) { b.Payload([]byte("a")); b.Payload(nil) }, nil},
		"option after Grow":      {func(b *Builder) { b.Grow(1); b.Uint(Accept, 0) }, ErrOrder},
		"the first error counts": {func(b *Builder) { b.Uint(Accept, 0); b.Uint(URIPath, 0); b.Payload(make([]byte, 1<<20)) }, ErrOrder},
	} {
		var b Builder
		b.Reset(make([]byte, 0, 2*longest), Con, GET, 1, nil)
		c.build(&b)
		if wire, err := b.Bytes(); !errors.Is(err, c.want) || (err != nil && len(wire) != 0) {
			t.Errorf("%s: error %v with %d bytes, want %v", name, err, len(wire), c.want)
		}
	}
}

// The extension bytes of lengths and numbers count as well when a message must fit.
func TestBuilderBoundsOfLongFields(t *testing.T) {
	const size = 4 + 2 + 300 + 1 + 2 + 2 + 300 // header, token, option 500 of 300 bytes
	for capacity := range size + 1 {
		backing := bytes.Repeat([]byte{0xaa}, size+8)
		var b Builder
		b.Reset(backing[:0:capacity], Con, GET, 1, make([]byte, 300))
		b.Option(500, make([]byte, 300))
		wire, err := b.Bytes()
		if fits := capacity == size; (err == nil) != fits || (fits && len(wire) != size) || (!fits && !errors.Is(err, ErrSpace)) {
			t.Fatalf("capacity %d: %d bytes, error %v", capacity, len(wire), err)
		}
		if len(wire) > 0 && &wire[0] != &backing[0] {
			t.Fatalf("capacity %d: the message is not in the buffer", capacity)
		}
		if !bytes.Equal(backing[capacity:], bytes.Repeat([]byte{0xaa}, len(backing)-capacity)) {
			t.Fatalf("capacity %d: bytes behind it were written", capacity)
		}
	}
}

// An empty message is four bytes (RFC 7252 section 4.1); a caller who supports no option rejects each critical one.
func TestEmptyMessage(t *testing.T) {
	var m Message
	if err := Parse(AppendEmpty(nil, Ack, 0x0102), &m); err != nil || m.Type != Ack || m.Code != Empty || m.ID != 0x0102 {
		t.Errorf("%+v, error %v", m, err)
	}
	if err := Parse(append(AppendEmpty(nil, Ack, 1), 0xff), &m); !errors.Is(err, ErrEmpty) {
		t.Errorf("an empty message with content: %v", err)
	}
	if err := Parse(benchmarkRequest(t), &m); err != nil {
		t.Fatal(err)
	}
	if id, bad := m.BadOption(nil); !bad || !id.Critical() {
		t.Errorf("%s, %t", id, bad)
	}
	if _, ok := m.Format(Accept); ok {
		t.Error("an absent option is a format")
	}
}

func TestRoomAndGrow(t *testing.T) {
	var b Builder
	b.Reset(make([]byte, 0, 16), Con, GET, 1, nil)
	if b.Room() != 11 || b.Grow(0) != nil || b.Grow(-1) != nil || b.Room() != 11 {
		t.Errorf("room for %d bytes, want 11", b.Room())
	}
	p := b.Grow(11)
	copy(p, "0123456789a")
	if wire, err := b.Bytes(); err != nil || len(p) != 11 || !bytes.HasSuffix(wire, []byte("\xff0123456789a")) {
		t.Errorf("%q, error %v", wire, err)
	}
	if b.Room() != 0 || b.Grow(1) != nil {
		t.Error("there is room behind the payload")
	}
	b.Reset(make([]byte, 0, 4), Con, GET, 1, nil)
	if b.Room() != 0 {
		t.Errorf("room for %d bytes in a full buffer", b.Room())
	}
	b.Reset(make([]byte, 0, 16), Con, GET, 1, nil)
	if b.Grow(12) != nil || b.Room() != 0 {
		t.Errorf("room for %d bytes after an error", b.Room())
	}
	if _, err := b.Bytes(); !errors.Is(err, ErrSpace) {
		t.Errorf("error %v", err)
	}
}
