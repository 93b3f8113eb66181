package record_test

import (
	"bytes"
	"testing"

	"github.com/weir-lb/weir/internal/dtls/record"
)

// An association at rest seals and opens as before. Only an authentic record ends the rest, so that a stranger cannot.
func TestRest(t *testing.T) {
	for _, suite := range record.Suites() {
		t.Run(suite.String(), func(t *testing.T) {
			keys := record.SplitKeys(suite, bytes.Repeat([]byte("key block"), 12)[:suite.KeysLength()])
			client, err := record.NewAssociation(suite, &keys, record.Client, []byte("to client"), []byte("to server"))
			if err != nil {
				t.Fatal(err)
			}
			server, err := record.NewAssociation(suite, &keys, record.Server, []byte("to server"), []byte("to client"))
			if err != nil {
				t.Fatal(err)
			}
			s := new(record.Scratch)
			seal := func(from *record.Association) []byte {
				buf := make([]byte, record.MaxHeadRoom+5+record.MaxTailRoom)
				copy(buf[record.MaxHeadRoom:], "hello")
				sealed, err := from.Seal(s, record.ApplicationData, buf, record.MaxHeadRoom, 5)
				if err != nil {
					t.Fatal(err)
				}
				return sealed
			}
			open := func(to *record.Association, sealed []byte) record.Verdict {
				var r record.Record
				if _, err := record.Next(bytes.Clone(sealed), 9, &r); err != nil {
					t.Fatal(err)
				}
				_, payload, _, verdict := to.Open(s, &r)
				if verdict == record.Opened && string(payload) != "hello" {
					t.Errorf("%q", payload)
				}
				return verdict
			}
			expanded := func() [2]bool { return record.Expanded(server) }
			first, second := seal(client), seal(client)
			if v := open(server, first); v != record.Opened {
				t.Fatal(v)
			}
			server.Rest()
			forged := bytes.Clone(second)
			forged[len(forged)-1] ^= 1
			if a, b := open(server, first), open(server, forged); a != record.Replayed || b != record.Forged || server.Forged() != 1 {
				t.Errorf("repeated: %v, forged: %v, %d forged", a, b, server.Forged())
			}
			if v := open(client, seal(server)); v != record.Opened {
				t.Errorf("sealed at rest: %v", v)
			}
			if expanded() != [2]bool{} {
				t.Errorf("expanded at rest: %v", expanded())
			}
			if v := open(server, second); v != record.Opened {
				t.Error(v)
			}
			if v := open(client, seal(server)); v != record.Opened || expanded() != [2]bool{true, true} || client.Newest() != 2 {
				t.Errorf("after the rest: %v, expanded %v, newest %d", v, expanded(), client.Newest())
			}
			if n := testing.AllocsPerRun(100, func() { _ = open(server, seal(client)) }); n > 2 { // the test's own two
				t.Errorf("%v allocations for a record after the rest", n)
			}
		})
	}
}

// An association that is made at rest expands its keys with the first authentic record, and not with what a stranger sends.
func TestNewResting(t *testing.T) {
	for _, suite := range record.Suites() {
		keys := record.SplitKeys(suite, bytes.Repeat([]byte("key block"), 12)[:suite.KeysLength()])
		client, err := record.NewAssociation(suite, &keys, record.Client, nil, []byte("to server"))
		if err != nil {
			t.Fatal(err)
		}
		server, err := record.NewResting(suite, &keys, record.Server, []byte("to server"), nil)
		if err != nil || record.Expanded(server) != [2]bool{} || record.Expanded(client) != [2]bool{true, true} {
			t.Fatalf("%v: %v, expanded: server %v, client %v", suite, err, record.Expanded(server), record.Expanded(client))
		}
		s := new(record.Scratch)
		for _, forge := range []bool{true, false} {
			buf := make([]byte, record.MaxHeadRoom+5+record.MaxTailRoom)
			copy(buf[record.MaxHeadRoom:], "hello")
			sealed, err := client.Seal(s, record.ApplicationData, buf, record.MaxHeadRoom, 5)
			if err != nil {
				t.Fatal(err)
			}
			if forge {
				sealed[len(sealed)-1] ^= 1
			}
			var r record.Record
			if _, err := record.Next(sealed, 9, &r); err != nil {
				t.Fatal(err)
			}
			_, payload, _, verdict := server.Open(s, &r)
			if forge && (verdict != record.Forged || record.Expanded(server) != [2]bool{}) || !forge && (verdict != record.Opened || string(payload) != "hello" || !record.Expanded(server)[0]) {
				t.Errorf("%v, forged %v: %v, %q, expanded %v", suite, forge, verdict, payload, record.Expanded(server))
			}
		}
	}
	if _, err := record.NewResting(record.Suite(1), new(record.Keys), record.Server, nil, nil); err == nil {
		t.Error("a suite that is not known")
	}
}
