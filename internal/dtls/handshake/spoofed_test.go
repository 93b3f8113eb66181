package handshake_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// spoofed are records that anybody can send from the client's address while its handshake is under way. The message of the
// client's second flight that is due has number 2 here.
func spoofed() map[string][]byte {
	message := func(typ byte, length int, sequence byte, offset int, data []byte) []byte {
		m := []byte{typ, 0, byte(length >> 8), byte(length), 0, sequence, 0, 0, byte(offset), 0, 0, byte(len(data))}
		return record.AppendPlain(nil, record.Handshake, 3, append(m, data...))
	}
	protected := record.AppendPlain(nil, record.Handshake, 0, make([]byte, 40)) // 53 bytes, as long as a Finished
	protected[4] = 1                                                            // epoch
	return map[string][]byte{
		"protected record":                   protected,
		"protected records":                  bytes.Repeat(protected, 20),
		"first fragment, of another length":  message(16, 500, 2, 0, make([]byte, 20)),
		"message of another type":            message(11, 3, 2, 0, make([]byte, 3)),
		"ClientKeyExchange that is cut off":  message(16, 4, 2, 0, []byte{0, 9, 'x', 'x'}),
		"Finished in clear":                  message(20, 12, 3, 0, make([]byte, 12)),
		"alert in clear":                     record.AppendPlain(nil, record.Alert, 3, []byte{2, 40}),
		"first fragment, of a later message": message(20, 12, 4, 0, make([]byte, 5)),
	}
}

// One spoofed record must not end a handshake (RFC 6347 section 4.1.2.7): it ended 20 of 20.
func TestSpoofedRecordsDoNotEndAHandshake(t *testing.T) {
	for name, d := range spoofed() {
		for _, place := range []string{"before the second flight", "before the Finished", "behind the ClientKeyExchange"} {
			c, err := handshake.NewClient(handshake.ClientConfig{Identity: []byte("cali.1"), Key: []byte(".fornium")})
			if err != nil {
				t.Fatal(err)
			}
			s := newServer(t, nil)
			flight := 0
			now := run(t, c, s, func(fromClient bool, b []byte) [][]byte {
				if !fromClient {
					return [][]byte{b}
				}
				if flight++; flight < 3 {
					return [][]byte{b}
				}
				parts := records(t, b)
				d := bytes.Clone(d)
				switch place {
				case "before the second flight":
					return append([][]byte{d}, parts...)
				case "before the Finished":
					return append(parts[:len(parts)-1:len(parts)-1], d, parts[len(parts)-1])
				}
				return append([][]byte{parts[0], d}, parts[1:]...)
			})
			if done, err := c.Done(); !done || err != nil || s.result == nil || now != time.Second {
				t.Errorf("%s, %s: done %t, %v, after %v", name, place, done, err, now-time.Second)
			}
		}
	}
}

// records are a datagram's records.
func records(t *testing.T, d []byte) (parts [][]byte) {
	t.Helper()
	var r record.Record
	for len(d) > 0 {
		rest, err := record.Next(d, -1, &r)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, bytes.Clone(d[:len(d)-len(rest)]))
		d = rest
	}
	return parts
}

// The client's Finished, lost the first time, still counts when it is repeated after a spoofed one.
func TestFinishedIsRepeatedAfterASpoofedOne(t *testing.T) {
	c, err := handshake.NewClient(handshake.ClientConfig{Identity: []byte("cali.1"), Key: []byte(".fornium"), Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, nil)
	flight := 0
	now := run(t, c, s, func(fromClient bool, b []byte) [][]byte {
		if fromClient {
			if flight++; flight == 3 {
				return [][]byte{records(t, b)[0], spoofed()["protected record"]}
			}
		}
		return [][]byte{b}
	})
	if done, err := c.Done(); !done || err != nil || s.result == nil || now != 3*time.Second {
		t.Errorf("done %t, %v, after %v", done, err, now-time.Second)
	}
}
