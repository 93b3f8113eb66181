package sockets

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
)

// The sockets of this process are found, with their process, and no others.
func TestSocketsOfThisProcess(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	datagrams, err := net.ListenPacket("udp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	for protocol, at := range map[string]netip.AddrPort{
		"tcp": listener.Addr().(*net.TCPAddr).AddrPort(), "udp": datagrams.LocalAddr().(*net.UDPAddr).AddrPort(),
	} {
		all, err := At("/proc", protocol, at.Port())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all, func(s Socket) bool { return s.Local == at })
		if i < 0 {
			t.Fatalf("%s %s is not among %+v", protocol, at, all)
		}
		owners := Owners("/proc", all[i:i+1])
		if len(owners) != 1 || owners[0].PID != os.Getpid() || !owners[0].Own || owners[0].Name == "" {
			t.Errorf("%s: %+v, want process %d", protocol, owners, os.Getpid())
		}
	}
}

func TestParse(t *testing.T) {
	const text = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:00B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0
   1: 0100007F:00B3 0200007F:8000 01 00000000:00000000 00:00000000 00000000     0        0 4712 1 0
   2: xyz:00B3 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4713 1 0
   3: 00000000000000000000000001000000:0EC8 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4714 2
`
	// As Linux on amd64 and arm64 writes it.
	want := []Socket{{netip.MustParseAddrPort("127.0.0.1:179"), "4711"}, {netip.MustParseAddrPort("[::1]:3784"), "4714"}}
	if all := parse(text, true); !slices.Equal(all, want) {
		t.Errorf("%+v", all)
	}
	if all := parse(text, false); len(all) != 3 {
		t.Errorf("%+v", all)
	}
}

// A process that is not seen is said to be so.
func TestOwnerThatIsNotSeen(t *testing.T) {
	owners := Owners(t.TempDir(), []Socket{{Inode: "1"}, {Inode: "2"}})
	if len(owners) != 1 || owners[0].Own || owners[0].String() != "a process that is not seen from here" {
		t.Errorf("%+v", owners)
	}
	if text := (Owner{PID: 7, Name: "bfdd"}).String(); text != "bfdd (process 7)" {
		t.Error(text)
	}
}
