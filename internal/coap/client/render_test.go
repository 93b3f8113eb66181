package client

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Examples of RFC 8949 appendix A.
func TestDiagnostic(t *testing.T) {
	for give, want := range map[string]string{
		"00": "0", "1b000000e8d4a51000": "1000000000000", "1bffffffffffffffff": "18446744073709551615", "3bffffffffffffffff": "-18446744073709551616",
		"3903e7": "-1000", "f90000": "0.0", "f98000": "-0.0", "f93c00": "1.0", "fb3ff199999999999a": "1.1", "f97bff": "65504.0", "fa47c35000": "100000.0",
		"fb7e37e43c8800759c": "1.0e+300", "f90001": "5.960464477539063e-8", "f9c400": "-4.0", "f97c00": "Infinity", "f97e00": "NaN", "f9fc00": "-Infinity",
		"f4": "false", "f5": "true", "f6": "null", "f7": "undefined", "f0": "simple(16)", "f8ff": "simple(255)",
		"c074323031332d30332d32315432303a30343a30305a": `0("2013-03-21T20:04:00Z")`, "4401020304": "h'01020304'", "62225c": `"\"\\"`,
		"8301820203820405": "[1, [2, 3], [4, 5]]", "a201020304": "{1: 2, 3: 4}", "826161a161626163": `["a", {"b": "c"}]`,
		"5f42010243030405ff": "(_ h'0102', h'030405')", "9fff": "[_ ]", "5fff": "''_", "7fff": `""_`, "62c3bc": `"\u00fc"`, "c249010000000000000000": "18446744073709551616", "bf61610161629f0203ffff": `{_ "a": 1, "b": [_ 2, 3]}`,
	} {
		b, err := hex.DecodeString(give)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := Diagnostic(b); !ok || got != want {
			t.Errorf("%s: %s %v, want %s", give, got, ok, want)
		}
	}
	for _, broken := range []string{"", "18", "1c", "61", "61ff", "82", "8201", "ff", "5f61", "5f5f", "f800", "0000", "a1", "df", "3f", strings.Repeat("81", 40) + "00", "9bffffffffffffffff"} {
		b, err := hex.DecodeString(broken)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := Diagnostic(b); ok {
			t.Errorf("%s is shown as %s", broken, got)
		}
	}
}

// What a server sends costs a bounded time and text: 16 MiB are a payload's limit.
func TestDiagnosticIsBounded(t *testing.T) {
	long := func(head string, n int) []byte { return append([]byte(head), make([]byte, n)...) }
	for name, item := range map[string][]byte{
		"a long document": long("\x5a\x00\x10\x00\x00", 0x100000),
		"a long text":     append([]byte("\x9a\x00\x0f\x00\x00"), bytes.Repeat([]byte{0xf7}, 0xf0000)...),
	} {
		if text, ok := Diagnostic(item); ok {
			t.Errorf("%s is shown in %d bytes", name, len(text))
		}
	}
	if text, ok := Diagnostic(long("\x9a\x00\x0f\x00\x00", 0xf0000)); !ok || len(text) != 3*0xf0000 {
		t.Errorf("a million zeros: %d bytes", len(text))
	}
}

func TestParseLinks(t *testing.T) {
	links, err := ParseLinks(`</sensors/temp>;rt="temperature-c";if="sensor";ct="0 50";obs , <coap://h/x,y>;title="a \"b\", c;d";sz=12`)
	if err != nil || len(links) != 2 {
		t.Fatalf("%+v, %v", links, err)
	}
	first, second := &links[0], &links[1]
	if first.Target != "/sensors/temp" || first.Attribute("rt") != "temperature-c" || first.Formats() != "text/plain application/json" || !first.Has("obs") || first.Has("sz") {
		t.Errorf("%+v", first)
	}
	if second.Target != "coap://h/x,y" || second.Attribute("title") != `a "b", c;d` || second.Attribute("sz") != "12" {
		t.Errorf("%+v", second)
	}
	if links, err := ParseLinks(" "); err != nil || links != nil {
		t.Errorf("an empty document: %v, %v", links, err)
	}
	for _, broken := range []string{"x", "<x", "<x>y", "<x>;", "<x>;=1", `<x>;a="b`, "<x>,", "<x>,,<y>", `<x>;a="b"c`} {
		if links, err := ParseLinks(broken); err == nil {
			t.Errorf("%q is read as %+v", broken, links)
		}
	}
}

func TestRendered(t *testing.T) {
	for _, test := range []struct {
		format        message.Format
		payload, want string
	}{
		{message.JSON, `{"a":[1,2]}`, "{\n  \"a\": [\n    1,\n    2\n  ]\n}"},
		{message.JSON, `{"a":`, `{"a":`},
		{message.CBOR, "\x82\x01\x61a", `[1, "a"]`},
		{message.CBOR, "\xff", "00000000  ff                                                |.|"},
		{message.LinkFormat, "</a>;rt=x,</b>", "</a>; rt=\"x\"\n</b>"},
		{message.LinkFormat, "</\x1b[31m>", "00000000  3c 2f 1b 5b 33 31 6d 3e                           |</.[31m>|"},
		{message.Text, "text", "text"},
	} {
		datagram, err := build(message.Ack, message.Content, nil, []Option{UintOption(message.ContentFormat, uint32(test.format))}, []byte(test.payload))
		var m message.Message
		if err != nil || message.Parse(datagram, &m) != nil {
			t.Fatal(err)
		}
		if got := Rendered(&m); got != test.want {
			t.Errorf("%s %q:\n%s\nwant\n%s", test.format, test.payload, got, test.want)
		}
	}
}

func FuzzDiagnostic(f *testing.F) {
	for _, seed := range []string{"\x82\x01\x61a", "\xbf\x61a\x01\x61b\x9f\x02\x03\xff\xff", "\x5f\x42\x01\x02\xff", "\xf9\x00\x01", "\x9b\xff\xff\xff\xff\xff\xff\xff\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, item []byte) {
		if text, ok := Diagnostic(item); ok && len(text) == 0 {
			t.Error("an item without text")
		}
	})
}

func FuzzParseLinks(f *testing.F) {
	for _, seed := range []string{`</a>;rt="x y";obs,</b>`, `<x>;a="b\"`, "<>,<>", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		links, err := ParseLinks(text)
		if err != nil {
			return
		}
		var again []string
		for _, l := range links {
			again = append(again, l.String())
		}
		second, err := ParseLinks(strings.Join(again, ","))
		if err != nil || len(second) != len(links) {
			t.Errorf("%q becomes %q: %v", text, again, err)
		}
	})
}
