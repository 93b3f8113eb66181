package redundancy

import (
	"bytes"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
)

func sampleRecords() []record {
	return []record{
		{number: 7, backend: 2, flow: flow.Translated{
			Key:    flow.NewKey(netip.MustParseAddrPort("10.0.0.1:2000"), netip.MustParseAddrPort("192.0.2.1:80"), lb.TCP),
			Source: netip.MustParseAddrPort("198.18.0.1:3000"), Progress: flow.Established, Left: time.Minute,
		}},
		{number: 1<<24 - 1, backend: 65535, flow: flow.Translated{
			Key: flow.NewKey(netip.MustParseAddrPort("[2001:db8::1]:1"), netip.MustParseAddrPort("[2001:db8::2]:65535"), lb.UDP), Left: -1,
		}},
	}
}

func TestRecordsAreReadAsTheyWereWritten(t *testing.T) {
	for _, want := range sampleRecords() {
		b := appendRecord(nil, &want)
		got, err := readRecord(b)
		if err != nil || len(b) != flowBytes || !reflect.DeepEqual(got, want) {
			t.Errorf("%d bytes, %v: %+v, want %+v", len(b), err, got, want)
		}
	}
	want := backend{service: "web", name: "a", server: netip.MustParseAddrPort("10.1.0.1:7000")}
	k, body, err := readFrame(bytes.NewReader(appendBackend(nil, 3, want)), make([]byte, maxFrame))
	if err != nil || k != kindBackend {
		t.Fatal(k, err)
	}
	if number, got, err := readBackend(body); err != nil || number != 3 || got != want {
		t.Errorf("%d %+v %v", number, got, err)
	}
}

// FuzzFrames: bytes of a peer never make a reader fail but with an error, and what it accepts is written back the same.
func FuzzFrames(f *testing.F) {
	f.Add(appendHello(nil, 5))
	f.Add(appendBackend(nil, 1, backend{service: "s", name: "b", server: netip.MustParseAddrPort("10.1.0.1:7000")}))
	frame := begin(nil, kindFlows)
	for _, r := range sampleRecords() {
		frame = appendRecord(frame, &r)
	}
	f.Add(finish(frame, 0))
	f.Add(appendNumbers(nil, kindAck, 1, 2))
	f.Fuzz(func(t *testing.T, data []byte) {
		buffer := make([]byte, maxFrame)
		for from := bytes.NewReader(data); ; {
			k, body, err := readFrame(from, buffer)
			if err != nil {
				return
			}
			if number, b, err := readBackend(body); k == kindBackend && err == nil {
				if again := appendBackend(nil, number, b); !bytes.Equal(again[headBytes:], body) {
					t.Fatalf("%x is written as %x", body, again)
				}
			}
			readHello(body)
			readFlows(body, func(r *record) {
				if again, err := readRecord(appendRecord(nil, r)); err != nil || !reflect.DeepEqual(again, *r) {
					t.Fatalf("%+v is read again as %+v: %v", r, again, err)
				}
			})
		}
	})
}
