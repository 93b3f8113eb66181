package tcpscale

import (
	"testing"
	"time"
)

func seeds() [][]byte {
	var all [][]byte
	for _, f := range []frame{
		{kind: frameClientHello, run: 1, client: 2, connection: 3, period: time.Second, misses: 3, mode: modeEcho},
		{kind: frameServerHello, generation: 7, id: [idLength]byte{'s'}, zone: [zoneLength]byte{'z'}},
		{kind: frameHeartbeat, seq: 5, sent: 6, echo: 7, since: 8, payload: 9},
		{kind: frameBye},
		{kind: frameEvicted, reason: reasonSilent, seq: 9},
	} {
		b := make([]byte, 64)
		all = append(all, b[:f.put(b)])
	}
	return all
}

func TestFramesSurviveTheWire(t *testing.T) {
	for _, b := range seeds() {
		for cut := range b {
			if _, n, err := parseFrame(b[:cut]); n != 0 || err != nil {
				t.Errorf("%x: the first %d bytes: %d, %v", b, cut, n, err)
			}
		}
		f, n, err := parseFrame(append(b[:len(b):len(b)], 'x'))
		again := make([]byte, 64)
		if err != nil || n != len(b) || string(again[:f.put(again)]) != string(b) {
			t.Errorf("%x: %d, %v, %+v", b, n, err, f)
		}
	}
}

func TestFramesThatCannotBeMeant(t *testing.T) {
	hello := func(change func(*frame)) []byte {
		f := frame{kind: frameClientHello, period: time.Second, misses: 3}
		change(&f)
		b := make([]byte, 64)
		return b[:f.put(b)]
	}
	for name, b := range map[string][]byte{
		"another protocol": []byte("GET / HTTP/1.1\r\n"),
		"version":          {'W', 'T', 2, frameBye},
		"kind":             {'W', 'T', wireVersion, 9},
		"no period":        hello(func(f *frame) { f.period = 0 }),
		"period":           hello(func(f *frame) { f.period = 2 * time.Hour }),
		"misses":           hello(func(f *frame) { f.misses = 0 }),
	} {
		if _, _, err := parseFrame(b); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	b := make([]byte, 64)
	f := frame{kind: frameHeartbeat, payload: MaxPayload + 1}
	if _, _, err := parseFrame(b[:f.put(b)]); err == nil {
		t.Error("too much payload is taken")
	}
}

func FuzzParseFrame(f *testing.F) {
	for _, b := range seeds() {
		f.Add(b)
	}
	f.Add([]byte("W"))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, n, err := parseFrame(b)
		if n < 0 || n > len(b) || err != nil && n > serverHelloLength {
			t.Fatalf("%d of %d bytes", n, len(b))
		}
		if err != nil || n == 0 {
			return
		}
		if got.payload < 0 || got.payload > MaxPayload {
			t.Fatalf("payload %d", got.payload)
		}
		out := make([]byte, serverHelloLength)
		back, m, err := parseFrame(out[:got.put(out)])
		if err != nil || m != n || back != got {
			t.Fatalf("%+v came back as %+v, %v", got, back, err)
		}
	})
}

func TestParsingDoesNotAllocate(t *testing.T) {
	all := seeds()
	if n := testing.AllocsPerRun(100, func() {
		for _, b := range all {
			if _, _, err := parseFrame(b); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
