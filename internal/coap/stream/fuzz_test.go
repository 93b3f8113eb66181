package stream_test

import (
	"bytes"
	"testing"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/stream"
)

// Whatever is received in whatever pieces: what is decoded does not depend on the pieces, a message that is decoded can be written
// again with the same meaning, and no more than the limit is held.
func FuzzStream(f *testing.F) {
	for _, seed := range []string{"00e1", "30e12210000143aa", "0f", "f0ffffffff01", "d10a01aab474657374ff0102030405060708", "11e20920", "0e010000"} {
		f.Add(unhex(f, seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, cut uint8) {
		whole := decode(t, in, len(in))
		pieces := decode(t, in, int(cut)+1)
		if !bytes.Equal(whole, pieces) {
			t.Fatalf("whole %x\npieces %x", whole, pieces)
		}
	})
}

// decode returns all messages, written again, and what a Session answers, up to the first error.
func decode(t *testing.T, in []byte, cut int) (all []byte) {
	const limit = 300
	decoder := stream.Decoder{Max: limit}
	var session stream.Session
	for start := 0; start < len(in); start += cut {
		decoder.Feed(bytes.Clone(in[start:min(start+cut, len(in))]))
		for {
			if cut < len(in) {
				decoder.Pause()
			}
			var m message.Message
			ok, err := decoder.Next(&m)
			if err != nil {
				return append(all, "error"...)
			}
			if !ok {
				break
			}
			var b message.Builder
			b.Reset(make([]byte, 0, 2*limit), message.Non, m.Code, 0, m.Token)
			for options := m.Options(); options.Next(); {
				b.Option(options.ID(), options.Value())
			}
			b.Payload(m.Payload)
			datagram, err := b.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			if all, err = stream.Append(all, datagram); err != nil {
				t.Fatal(err)
			}
			var event stream.Event
			if event, all = session.Receive(&m, all); event == stream.Failed {
				return all
			}
		}
		if decoder.Held() > 4*(limit+cut) {
			t.Fatalf("%d bytes held", decoder.Held())
		}
	}
	return all
}
