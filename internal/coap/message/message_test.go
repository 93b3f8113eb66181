package message

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

func fromHex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func pathOf(m *Message) (path string) {
	for options := m.Options(); options.Next(); {
		if options.ID() == URIPath {
			path += "/" + string(options.Value())
		}
	}
	return path
}

// The examples of RFC 7252 appendix A, byte for byte.
func TestRFC7252AppendixA(t *testing.T) {
	t.Run("figure 16 request", func(t *testing.T) {
		wire := fromHex(t, "40 01 7d34 bb 74656d7065726174757265")
		var m Message
		if err := Parse(wire, &m); err != nil {
			t.Fatal(err)
		}
		if m.Type != Con || m.Code != GET || m.ID != 0x7d34 || len(m.Token) != 0 || pathOf(&m) != "/temperature" {
			t.Fatalf("read %+v %s", m, pathOf(&m))
		}
		var b Builder
		b.Reset(make([]byte, 0, 64), Con, GET, 0x7d34, nil)
		b.Text(URIPath, "temperature")
		if got, err := b.Bytes(); err != nil || !bytes.Equal(got, wire) {
			t.Fatalf("built %x %v, want %x", got, err, wire)
		}
	})
	t.Run("figure 16 response", func(t *testing.T) {
		wire := fromHex(t, "60 45 7d34 ff 32322e332043")
		var m Message
		if err := Parse(wire, &m); err != nil {
			t.Fatal(err)
		}
		if m.Type != Ack || m.Code != Content || string(m.Payload) != "22.3 C" {
			t.Fatalf("read %+v", m)
		}
		var b Builder
		b.Reset(make([]byte, 0, 64), Ack, Content, 0x7d34, nil)
		copy(b.Grow(6), "22.3 C")
		if got, err := b.Bytes(); err != nil || !bytes.Equal(got, wire) {
			t.Fatalf("built %x %v", got, err)
		}
	})
	t.Run("figure 17 request with token", func(t *testing.T) {
		wire := fromHex(t, "41 01 7d35 20 bb 74656d7065726174757265")
		var m Message
		if err := Parse(wire, &m); err != nil || !bytes.Equal(m.Token, []byte{0x20}) {
			t.Fatalf("%+v %v", m, err)
		}
	})
	t.Run("empty messages", func(t *testing.T) {
		if got := AppendEmpty(nil, Ack, 0x7d38); !bytes.Equal(got, fromHex(t, "60 00 7d38")) {
			t.Fatalf("%x", got)
		}
		if got := AppendEmpty(nil, Rst, 0x7d37); !bytes.Equal(got, fromHex(t, "70 00 7d37")) {
			t.Fatalf("%x", got)
		}
	})
}

func TestOptionsRoundTrip(t *testing.T) {
	values := []struct {
		id    OptionID
		value []byte
	}{
		{IfMatch, nil},
		{URIHost, []byte("a")},
		{URIPath, bytes.Repeat([]byte("p"), 12)},
		{URIPath, bytes.Repeat([]byte("p"), 13)},
		{URIPath, bytes.Repeat([]byte("p"), 255)},
		{ContentFormat, []byte{60}},
		{Block2, []byte{1, 2, 3}},
		{ProxyURI, bytes.Repeat([]byte("x"), 1034)},
		{Echo, []byte{1}},
		{65535, []byte("last")},
	}
	var b Builder
	b.Reset(make([]byte, 0, 4096), Non, FETCH, 1, []byte{1, 2, 3})
	for _, v := range values {
		b.Option(v.id, v.value)
	}
	b.Payload([]byte{0xff, 0})
	wire, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var m Message
	if err := Parse(wire, &m); err != nil {
		t.Fatal(err)
	}
	i := 0
	for options := m.Options(); options.Next(); i++ {
		if options.ID() != values[i].id || !bytes.Equal(options.Value(), values[i].value) {
			t.Errorf("option %d: got %s %x", i, options.ID(), options.Value())
		}
	}
	if i != len(values) || !bytes.Equal(m.Payload, []byte{0xff, 0}) {
		t.Errorf("%d options, payload %x", i, m.Payload)
	}
}

func TestTokenLengths(t *testing.T) {
	for _, n := range []int{0, 1, 8, 9, 12, 13, 14, 63, 64} { // RFC 8974: 0..12 direct, 13 with one byte more
		token := bytes.Repeat([]byte{7}, n)
		var b Builder
		b.Reset(make([]byte, 0, 128), Con, GET, 9, token)
		b.Text(URIPath, "x")
		wire, err := b.Bytes()
		if err != nil {
			t.Fatal(n, err)
		}
		var m Message
		if err := Parse(wire, &m); err != nil || !bytes.Equal(m.Token, token) || pathOf(&m) != "/x" {
			t.Errorf("%d: %v %x", n, err, m.Token)
		}
	}
	for _, n := range []int{65, 300} {
		var b Builder
		b.Reset(make([]byte, 0, 512), Con, GET, 9, make([]byte, n))
		wire, err := b.Bytes()
		if err != nil {
			t.Fatal(n, err)
		}
		var m Message
		if err := Parse(wire, &m); !errors.Is(err, ErrToken) || m.ID != 9 || m.Type != Con {
			t.Errorf("%d: %v, %+v: want ErrToken with type and id for a Rst", n, err, m)
		}
	}
}

func TestParseRejects(t *testing.T) {
	for _, c := range []struct {
		name, wire string
		want       error
	}{
		{"nothing", "", ErrHeader},
		{"three bytes", "400100", ErrHeader},
		{"version 0", "00010001", ErrHeader},
		{"version 2", "80010001", ErrHeader},
		{"token behind the end", "4801000101", ErrToken},
		{"token length 15", "4f010001", ErrToken},
		{"extended token length missing", "4d010001", ErrToken},
		{"empty with token", "4100000101", ErrEmpty},
		{"empty with payload", "40000001ff01", ErrEmpty},
		{"option delta 15", "40010001f0", ErrOption},
		{"option length 15", "400100010f", ErrOption},
		{"option behind the end", "40010001b2aa", ErrOption},
		{"option extension missing", "40010001d0", ErrOption},
		{"option extension half", "40010001e000", ErrOption},
		{"option number overflow", "40010001e0ffff" + "e0ffff", ErrOption},
		{"payload marker alone", "40010001ff", ErrPayload},
		{"payload marker alone after option", "40010001b1aaff", ErrPayload},
		{"65 options", "40010001" + strings.Repeat("00", 65), ErrOption},
	} {
		var m Message
		if err := Parse(fromHex(t, c.wire), &m); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
	var m Message
	if err := Parse(fromHex(t, "40010001"+strings.Repeat("00", 64)), &m); err != nil {
		t.Errorf("64 options: %v", err)
	}
}

func TestBadOption(t *testing.T) {
	known := func(id OptionID) bool { return id == URIPath || id == Accept || id == IfNoneMatch || id == 2049 }
	for _, c := range []struct {
		name  string
		build func(*Builder)
		want  OptionID
	}{
		{"none", func(*Builder) {}, 0},
		{"elective unknown", func(b *Builder) { b.Option(65000, nil) }, 0},
		{"critical unknown", func(b *Builder) { b.Option(65001, nil) }, 65001},
		{"critical known by caller only", func(b *Builder) { b.Option(2049, make([]byte, 300)) }, 0},
		{"repeatable", func(b *Builder) { b.Text(URIPath, "a"); b.Text(URIPath, "b") }, 0},
		{"not repeatable", func(b *Builder) { b.Uint(Accept, 0); b.Uint(Accept, 0) }, Accept},
		{"too long", func(b *Builder) { b.Option(Accept, make([]byte, 3)) }, Accept},
		{"empty with value", func(b *Builder) { b.Option(IfNoneMatch, []byte{1}) }, IfNoneMatch},
		{"elective too long is ignored", func(b *Builder) { b.Option(ETag, make([]byte, 9)) }, 0},
		{"known to the RFC, not to the caller", func(b *Builder) { b.Uint(Block1, 0) }, Block1},
	} {
		var b Builder
		b.Reset(make([]byte, 0, 1024), Con, GET, 1, nil)
		c.build(&b)
		wire, err := b.Bytes()
		if err != nil {
			t.Fatal(c.name, err)
		}
		var m Message
		if err := Parse(wire, &m); err != nil {
			t.Fatal(c.name, err)
		}
		if id, bad := m.BadOption(known); id != c.want || bad != (c.want != 0) {
			t.Errorf("%s: got %s %t", c.name, id, bad)
		}
	}
}

func TestUints(t *testing.T) {
	for value, want := range map[uint32]string{0: "", 1: "01", 255: "ff", 256: "0100", 65536: "010000", 1<<32 - 1: "ffffffff"} {
		var b Builder
		b.Reset(make([]byte, 0, 16), Con, GET, 1, nil)
		b.Uint(Size1, value)
		wire, _ := b.Bytes()
		var m Message
		if err := Parse(wire, &m); err != nil {
			t.Fatal(err)
		}
		raw, _ := m.Option(Size1)
		if got, ok := m.Uint(Size1); !ok || got != value || hex.EncodeToString(raw) != want {
			t.Errorf("%d: %x %d %t", value, raw, got, ok)
		}
	}
	if _, ok := Uint(make([]byte, 5)); ok {
		t.Error("5 bytes read as a uint")
	}
}

// A builder never writes behind the capacity it was given and reports what did not fit.
func TestBuilderBounds(t *testing.T) {
	for size := range 40 {
		backing := bytes.Repeat([]byte{0xaa}, 64)
		var b Builder
		b.Reset(backing[:2:2+size], Con, POST, 1, []byte{1, 2})
		b.Text(URIPath, "benchmark")
		b.Uint(ContentFormat, 50)
		b.Payload([]byte("0123456789"))
		wire, err := b.Bytes()
		if need := 4 + 2 + 10 + 2 + 11; (err == nil) != (size >= need) || err != nil && !errors.Is(err, ErrSpace) {
			t.Fatalf("size %d: %v", size, err)
		}
		if err == nil && len(wire) != 2+29 {
			t.Fatalf("size %d: %d bytes", size, len(wire))
		}
		if err != nil && len(wire) != 2 {
			t.Fatalf("size %d: a failed message left %d bytes", size, len(wire))
		}
		for i, c := range backing[min(2+size, 64):] {
			if c != 0xaa {
				t.Fatalf("size %d: byte %d behind the capacity was written", size, i)
			}
		}
	}
	var b Builder
	b.Reset(make([]byte, 0, 64), Con, GET, 1, nil)
	b.Uint(Accept, 0)
	b.Text(URIPath, "late")
	if _, err := b.Bytes(); !errors.Is(err, ErrOrder) {
		t.Errorf("descending options: %v", err)
	}
	b.Reset(make([]byte, 0, 64), Con, GET, 1, nil)
	b.Payload([]byte("x"))
	b.Uint(Accept, 0)
	if _, err := b.Bytes(); !errors.Is(err, ErrOrder) {
		t.Errorf("option behind payload: %v", err)
	}
}

func TestCodes(t *testing.T) {
	if NotFound.String() != "4.04" || Continue.String() != "2.31" || GET.String() != "0.01" || Code(0xff).String() != "7.31" {
		t.Error(NotFound, Continue, GET, Code(0xff))
	}
	if c, ok := ParseMethod("pOsT"); !ok || c != POST {
		t.Error(c, ok)
	}
	if _, ok := ParseMethod("HEAD"); ok {
		t.Error("HEAD is a method")
	}
	for id, want := range map[OptionID]bool{URIPath: true, MaxAge: false, Size1: false, Block2: true, RequestTag: false} {
		if id.Critical() != want {
			t.Errorf("%s: %t, want %t", id, !want, want)
		}
	}
}

func TestZeroAllocations(t *testing.T) {
	request, out := benchmarkRequest(t), make([]byte, 0, 256)
	payload := bytes.Repeat([]byte("*"), 64)
	var m Message
	var b Builder
	allocs := testing.AllocsPerRun(100, func() {
		if Parse(request, &m) != nil {
			t.Fatal("parse")
		}
		for options := m.Options(); options.Next(); {
			_ = options.ID()
		}
		if _, bad := m.BadOption(func(OptionID) bool { return true }); bad {
			t.Fatal("bad option")
		}
		b.Reset(out, Ack, Changed, m.ID, m.Token)
		b.Uint(ContentFormat, 0)
		b.Payload(payload)
		if _, err := b.Bytes(); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations per message", allocs)
	}
}

func benchmarkRequest(t testing.TB) []byte {
	var b Builder
	b.Reset(make([]byte, 0, 256), Con, POST, 7, []byte{1, 2, 3, 4})
	b.Text(URIPath, "benchmark")
	b.Uint(ContentFormat, 0)
	b.Text(URIQuery, "rlen=64")
	b.Payload(bytes.Repeat([]byte("x"), 40))
	wire, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return wire
}

func BenchmarkParseAndBuild(b *testing.B) {
	request, out := benchmarkRequest(b), make([]byte, 0, 256)
	payload := bytes.Repeat([]byte("*"), 64)
	b.ReportAllocs()
	for b.Loop() {
		var m Message
		if Parse(request, &m) != nil {
			b.Fatal("parse")
		}
		for options := m.Options(); options.Next(); {
			_ = options.Value()
		}
		var builder Builder
		builder.Reset(out, Ack, Changed, m.ID, m.Token)
		builder.Uint(ContentFormat, 0)
		builder.Payload(payload)
		if _, err := builder.Bytes(); err != nil {
			b.Fatal(err)
		}
	}
}
