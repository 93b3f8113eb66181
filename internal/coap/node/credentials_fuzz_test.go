package node

import (
	"strings"
	"testing"
)

// Whatever a file of keys holds: it is read, or refused with the line, and no error shows a key.
func FuzzCredentials(f *testing.F) {
	f.Add("# devices\none=c2VjcmV0\ntwo=:0x736573616D65\n")
	f.Add("Demo.1=Thing\n.label=x\n.psk='Client_identity',c2VjcmV0UFNL\n[Demo.2].psk=aWQ=,'secretPSK'\n")
	f.Add("a=T\n.rpk=MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEo0msWyi2DwpS39sf8Wnv6lk+wunetleRJfIxxG8KFOoqrhK7Acweg+1BQo+ApFFabYNZfzu/tUIC2laB398n5g==\n")
	f.Fuzz(func(t *testing.T, text string) {
		c := &Credentials{keys: map[string][]byte{}, rawKeys: map[string]bool{}}
		if err := c.parse("file", text); err != nil {
			if !strings.HasPrefix(err.Error(), "file:") {
				t.Errorf("%v names no line", err)
			}
			return
		}
		for identity, key := range c.keys {
			if identity == "" || len(identity) > maxPSKIdentity || len(key) < minPSK || len(key) > maxPSK {
				t.Errorf("%q with a key of %d bytes", identity, len(key))
			}
		}
	})
}
