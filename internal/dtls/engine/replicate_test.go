package engine

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/dtls/handshake"
	"github.com/weir-lb/weir/internal/dtls/record"
)

// FuzzParseCopy: copies come from other nodes.
func FuzzParseCopy(f *testing.F) {
	association, err := record.NewResting(record.PSKWithAES128GCMSHA256, &record.Keys{ClientKey: [32]byte{1}, ServerIV: [4]byte{2}}, record.Server, []byte{1, 2, 3, 4, 5, 6}, []byte{7})
	if err != nil {
		f.Fatal(err)
	}
	w := new(Worker)
	p := &Peer{association: association, holder: holder{name: "device"}, hasCID: true}
	f.Add(w.static(p), bytes.Clone(w.changing(p)))
	f.Add([]byte{1}, []byte{1})
	f.Fuzz(func(t *testing.T, static, changing []byte) {
		state, rest, err := parseCopy(static, changing, time.Hour)
		if err != nil {
			return
		}
		if len(state.ReadCID) > 255 || len(state.Identity) > maxIdentity || len(rest) > len(changing) {
			t.Errorf("%+v, %d bytes left of %d", state, len(rest), len(changing))
		}
		if len(state.ReadCID) > record.MaxCID || len(state.WriteCID) > record.MaxCID {
			if _, err := record.NewResting(state.Suite, &state.Keys, record.Server, state.ReadCID, state.WriteCID); err == nil {
				t.Error("a connection id that is too long makes a session")
			}
		}
	})
}

// What a copy says of a session is what the session is, but for its replay window: nothing below the newest record is accepted.
func TestACopyIsTheSession(t *testing.T) {
	keys := record.Keys{ClientKey: [32]byte{1}, ServerKey: [32]byte{2}, ClientIV: [4]byte{3}, ServerIV: [4]byte{4}}
	association, err := record.NewResting(record.PSKWithAES128GCMSHA256, &keys, record.Server, []byte{1, 2, 3, 4, 5, 6}, []byte{7, 8})
	if err != nil {
		t.Fatal(err)
	}
	association.Resume(77, 5, record.NewWindow(1000, 0b101))
	w := new(Worker)
	p := &Peer{association: association, addr: netip.MustParseAddrPort("192.0.2.7:5684"), holder: holder{handshake.AuthPSK, "device"}, hasCID: true, extended: true, unproven: true}
	static := w.static(p)
	state, rest, err := parseCopy(static, w.changing(p), time.Hour)
	if err != nil || len(rest) != 0 {
		t.Fatalf("%v, %x", err, rest)
	}
	if want := staticLength + 6 + 2 + len("device"); len(static) != want || cap(static) > want+16 {
		t.Errorf("%d bytes that never change in %d of memory, want %d", len(static), cap(static), want)
	}
	if state.Keys != keys || state.Suite != association.Suite() || state.Identity != "device" || state.Flags != p.flags() || state.Path.Addr != p.addr || state.Path.Proven ||
		!bytes.Equal(state.ReadCID, association.ReadCID()) || !bytes.Equal(state.WriteCID, association.WriteCID()) || state.Forged != 5 || state.Limit != association.PlaintextLimit() {
		t.Errorf("%+v", state)
	}
	for sequence := uint64(900); sequence < 1000; sequence++ {
		if state.Window.Check(sequence) {
			t.Errorf("record %d is accepted", sequence)
		}
	}
	if !state.Window.Check(1000) {
		t.Error("the next record is not accepted")
	}
}
