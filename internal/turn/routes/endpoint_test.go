package routes

import (
	"strings"
	"testing"
)

func TestParseEndpoint(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1":                "10.0.0.1",
		"10.0.0.1/32":             "10.0.0.1",
		"10.0.0.0/8":              "10.0.0.0/8",
		"10.0.0.1:5000":           "10.0.0.1:5000",
		"10.1.0.0/16:10000-20000": "10.1.0.0/16:10000-20000",
		"10.1.0.0/16:<100-200>":   "10.1.0.0/16:100-200",
		"10.1.0.1:<5-5>":          "10.1.0.1:5",
		"0.0.0.0/0":               "0.0.0.0/0",
		"::/0":                    "::/0",
		"2001:db8::1":             "2001:db8::1",
		"2001:db8::/32":           "2001:db8::/32",
		"[2001:db8::1]:5000":      "[2001:db8::1]:5000",
		"[2001:db8::/32]:5-6":     "[2001:db8::/32]:5-6",
		"[2001:db8::1]":           "2001:db8::1",
		"2001:db8::/32:<5-6>":     "[2001:db8::/32]:5-6",
		"::ffff:10.0.0.1":         "10.0.0.1",
		"media.example":           "media.example",
		"Media.Example:5000":      "media.example:5000",
		"media.example.:5-7":      "media.example.:5-7",
		"localhost":               "localhost",
		"_turn._udp.example":      "_turn._udp.example",
		"a1.b2":                   "a1.b2",
	} {
		e, err := ParseEndpoint(text)
		if err != nil || e.String() != want {
			t.Errorf("%s: %s, %v; want %s", text, e, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                    "no endpoint",
		"10.0.0.300":          "no endpoint",
		"10.0.0":              "no endpoint",
		"1000":                "no endpoint",
		"10.1.2.3/8":          "write 10.0.0.0/8, or the address alone",
		"10.0.0.0/33":         "no prefix",
		"::ffff:10.0.0.0/104": "no prefix",
		"10.0.0.1:":           "no port behind the colon",
		"10.0.0.1:0":          "no ports",
		"10.0.0.1:70000":      "no ports",
		"10.0.0.1:9-5":        "no ports",
		"10.0.0.1:5-":         "no ports",
		"10.0.0.1:<5-6":       "no ports",
		"10.0.0.1:x":          "no ports",
		"[10.0.0.1]:5":        "no endpoint",
		"[2001:db8::1":        "no endpoint",
		"[2001:db8::1]x":      "no endpoint",
		"[2001:db8::1]:":      "no endpoint",
		"fe80::1%eth0":        "zone",
		"a..b":                "no endpoint",
		"-a.b":                "no endpoint",
		"a b":                 "no endpoint",
		"http://a.b/":         "no p",
		"a.b:1:2":             "no endpoint",
	} {
		e, err := ParseEndpoint(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %s, error %v, want %s", text, e, err, want)
		}
	}
}

// What is read can be written and read again as the same.
func FuzzParseEndpoint(f *testing.F) {
	for _, seed := range []string{"10.0.0.0/8", "10.1.0.0/16:10000-20000", "[2001:db8::/32]:5-6", "2001:db8::/32:<5-6>", "a.example:5", "::", "[::]:1-2", "x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseEndpoint(text)
		if err != nil {
			return
		}
		if again, err := ParseEndpoint(e.String()); err != nil || again != e {
			t.Errorf("%q is %s, read again %s, %v", text, e, again, err)
		}
		if e.Name == "" && (!e.Prefix.IsValid() || e.Prefix != e.Prefix.Masked()) || e.MinPort > e.MaxPort || (e.MinPort == 0) != (e.MaxPort == 0) {
			t.Errorf("%q is %#v", text, e)
		}
	})
}
