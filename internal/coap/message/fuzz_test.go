package message

import (
	"bytes"
	"testing"
)

// What Parse accepts, the Builder writes again with the same meaning, and every getter stays inside the datagram.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"40017d34bb74656d7065726174757265", "60457d34ff32322e332043", "70007d37", "4d0100010001020304050607080910111213bb", "40010001e00000ff01",
		"4402000701020304b962656e63686d61726b103772656c6e3d3634ff78787878", "40010001d1ff00d2ff0102ff00", "4e010001",
	} {
		f.Add(fromHex(f, seed))
	}
	f.Fuzz(func(t *testing.T, datagram []byte) {
		var m Message
		if Parse(datagram, &m) != nil {
			return
		}
		var b Builder
		b.Reset(make([]byte, 0, 2*len(datagram)+16), m.Type, m.Code, m.ID, m.Token)
		count := 0
		for options := m.Options(); options.Next(); count++ {
			b.Option(options.ID(), options.Value())
		}
		b.Payload(m.Payload)
		wire, err := b.Bytes()
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		if len(wire) > len(datagram) {
			t.Fatalf("written longer than read: %x from %x", wire, datagram)
		}
		var again Message
		if err := Parse(wire, &again); err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		a, o := m.Options(), again.Options()
		for range count {
			if !a.Next() || !o.Next() || a.ID() != o.ID() || !bytes.Equal(a.Value(), o.Value()) {
				t.Fatal("options changed by decoding and encoding")
			}
		}
		if again.ID != m.ID || again.Type != m.Type || again.Code != m.Code || !bytes.Equal(again.Token, m.Token) || !bytes.Equal(again.Payload, m.Payload) {
			t.Fatal("message changed by decoding and encoding")
		}
		_, _ = m.BadOption(func(OptionID) bool { return true })
	})
}
