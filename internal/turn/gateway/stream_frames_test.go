package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func stunFrame(body int) []byte {
	b := make([]byte, stunHeader+body)
	binary.BigEndian.PutUint16(b, 0x0001)
	binary.BigEndian.PutUint16(b[2:], uint16(body))
	binary.BigEndian.PutUint32(b[4:], stunCookie)
	return b
}

func channelFrame(number uint16, payload []byte) []byte {
	b := make([]byte, channelHeader+(len(payload)+3)&^3)
	binary.BigEndian.PutUint16(b, number)
	binary.BigEndian.PutUint16(b[2:], uint16(len(payload)))
	copy(b[channelHeader:], payload)
	return b
}

// readAll returns copies of the frames of a stream and the error that ended it.
func readAll(r io.Reader, limit int) (frames [][]byte, rest []byte, err error) {
	f := frameReader{pool: new(chunkPool)}
	f.limit.Store(int64(limit))
	for err == nil {
		var c *chunk
		c, err = f.read(r)
		if c != nil {
			for _, frame := range c.frames {
				frames = append(frames, bytes.Clone(frame))
			}
			f.pool.put(c)
		}
	}
	return frames, f.take(), err
}

func TestFramesAreTheSameHoweverTheStreamIsCut(t *testing.T) {
	want := [][]byte{
		stunFrame(0), channelFrame(0x4000, []byte("a")), channelFrame(0x4FFF, nil), stunFrame(120),
		channelFrame(0x4001, bytes.Repeat([]byte{7}, 65535)), stunFrame(65532), channelFrame(0x4002, []byte("end!")),
	}
	stream := bytes.Join(want, nil)
	for name, r := range map[string]io.Reader{
		"at once":     bytes.NewReader(stream),
		"by byte":     iotest.OneByteReader(bytes.NewReader(stream)),
		"by half":     iotest.HalfReader(bytes.NewReader(stream)),
		"with errors": iotest.DataErrReader(bytes.NewReader(stream)),
	} {
		got, rest, err := readAll(r, maxFrame)
		if !errors.Is(err, io.EOF) || len(rest) != 0 {
			t.Errorf("%s: %v, %d bytes over", name, err, len(rest))
		}
		if len(got) != len(want) {
			t.Fatalf("%s: %d frames, want %d", name, len(got), len(want))
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				t.Errorf("%s: frame %d differs", name, i)
			}
		}
	}
}

// A long message that comes byte by byte costs its memory once: otherwise each byte would be paid with 64 KiB.
func TestDrippedFrameIsNotCopied(t *testing.T) {
	f := frameReader{pool: new(chunkPool)}
	f.limit.Store(maxFrame)
	r := iotest.OneByteReader(bytes.NewReader(stunFrame(65532)))
	drip := func() {
		if c, err := f.read(r); c != nil || err != nil {
			t.Fatalf("%v, %v of an unfinished frame", c, err)
		}
	}
	for range 20 {
		drip()
	}
	if n := testing.AllocsPerRun(1000, drip); n != 0 {
		t.Errorf("%v allocations for a byte", n)
	}
}

func TestFramesEndAtWhatIsNotTurn(t *testing.T) {
	first := stunFrame(8)
	for name, c := range map[string]struct {
		then  []byte
		limit int
		want  error
	}{
		"reserved channel number": {[]byte{0x80, 0, 0, 0}, maxFrame, errNotTurn},
		"TLS record":              {[]byte{0x16, 3, 1, 4}, maxYoungFrame, io.EOF}, // perhaps STUN until its cookie comes
		"TLS hello":               {[]byte{0x16, 3, 1, 2, 0, 1, 0, 1}, maxYoungFrame, errNotTurn},
		"RTP":                     {[]byte{0x80, 0x60, 0, 0}, maxFrame, errNotTurn},
		"odd STUN length":         {[]byte{0, 1, 0, 3, 0x21, 0x12, 0xA4, 0x42}, maxFrame, errNotTurn},
		"no cookie":               {[]byte{0, 1, 0, 4, 0, 0, 0, 0}, maxFrame, errNotTurn},
		"HTTP":                    {[]byte("GET / HTTP/1.1\r\n"), maxYoungFrame, errLongFrame},
		"long for a young client": {channelFrame(0x4000, make([]byte, 4093))[:8], maxYoungFrame, errLongFrame},
		"unfinished":              {stunFrame(8)[:27], maxFrame, io.EOF},
	} {
		got, _, err := readAll(bytes.NewReader(append(bytes.Clone(first), c.then...)), c.limit)
		if len(got) != 1 || !bytes.Equal(got[0], first) {
			t.Errorf("%s: the frame before it is lost", name)
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestFrameReaderKeepsLittle(t *testing.T) {
	f := frameReader{pool: new(chunkPool)}
	f.limit.Store(maxFrame)
	frame := channelFrame(0x4000, make([]byte, 1000))
	stream := bytes.Repeat(frame, 14)
	r := bytes.NewReader(stream)
	least := 1000.0
	for range 100 { // a pool drops a quarter of what is put back under the race detector, and all when memory is collected
		least = min(least, testing.AllocsPerRun(1, func() {
			r.Reset(stream)
			c, err := f.read(r)
			if err != nil || len(c.frames) != 14 {
				t.Fatal(err)
			}
			f.pool.put(c)
		}))
	}
	if least > 0 {
		t.Errorf("at least %v allocations for a read of 14 frames", least)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(append(stunFrame(4), channelFrame(0x4000, []byte("abcde"))...), uint8(3))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint8(1))
	f.Add([]byte{0x16, 0x03, 0x01, 0x02, 0x00, 0x01}, uint8(200))
	f.Fuzz(func(t *testing.T, stream []byte, step uint8) {
		whole, rest, err := readAll(bytes.NewReader(stream), maxYoungFrame)
		cut, cutRest, cutErr := readAll(&stepReader{b: stream, step: int(step) + 1}, maxYoungFrame)
		if !errors.Is(cutErr, err) || len(whole) != len(cut) || !errors.Is(err, io.EOF) && err == nil {
			t.Fatalf("%d frames and %v at once, %d and %v by %d bytes", len(whole), err, len(cut), cutErr, int(step)+1)
		}
		for i := range whole {
			if !bytes.Equal(whole[i], cut[i]) {
				t.Fatalf("frame %d depends on how the stream was cut", i)
			}
			if size, ok := frameSize(whole[i]); !ok || size != len(whole[i]) || size > maxYoungFrame {
				t.Fatalf("frame %d of %d bytes says %d", i, len(whole[i]), size)
			}
		}
		if errors.Is(err, io.EOF) { // nothing is lost
			if all := append(bytes.Join(whole, nil), rest...); !bytes.Equal(all, stream) {
				t.Fatal("the frames and the rest are not the stream")
			}
			if !bytes.Equal(rest, cutRest) {
				t.Fatal("the rest depends on how the stream was cut")
			}
		}
	})
}

// stepReader gives step bytes a call.
type stepReader struct {
	b    []byte
	step int
}

func (r *stepReader) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.b[:min(r.step, len(r.b))])
	r.b = r.b[n:]
	return n, nil
}
