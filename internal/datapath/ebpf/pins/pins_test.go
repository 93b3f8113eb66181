package pins

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/bpf"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// Both hooks' objects must have the same maps, for they share them.
func TestObjectsAgree(t *testing.T) {
	a, err := bpf.LoadXDP()
	if err != nil {
		t.Fatal(err)
	}
	b, err := bpf.LoadTCX()
	if err != nil {
		t.Fatal(err)
	}
	x, err := abi(a)
	if err != nil {
		t.Fatal(err)
	}
	if y, err := abi(b); err != nil || x != y {
		t.Errorf("%s and %s, %v", x, y, err)
	}
	delete(b.Maps, bpf.MapVips)
	if y, _ := abi(b); x == y {
		t.Error("the layout does not depend on the maps")
	}
	if a, b := attach.PinName(attach.HookXDP, "eth0.100"), attach.PinName(attach.HookXDP, "eth0%2e100"); a == b || strings.Contains(a, ".") {
		t.Errorf("pins of two interfaces: %s, %s", a, b)
	}
}

// The journal survives texts of any length, and says when it is damaged.
func TestRootJournal(t *testing.T) {
	t.Parallel()
	netlabtest.Root(t)
	k, err := NewStore()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	var got Generation
	if err := k.Read(0, &got); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("before the first: %v", err)
	}
	for _, n := range []int{0, 1, 500, 3} {
		want := Generation{Services: []Service{}}
		for i := range n {
			want.Services = append(want.Services, Service{Name: fmt.Sprint("service ", i), Number: uint16(i), Backends: []Backend{
				{Name: "a", Slot: uint16(i), Address4: netip.MustParseAddr("10.0.0.1")},
				{Name: "b", Slot: 9, Address6: netip.MustParseAddr("2001:db8::1"), Port: 80},
			}})
		}
		if err := k.Write(0, want); err != nil {
			t.Fatal(err)
		}
		got = Generation{}
		if err := k.Read(0, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%d services: %v, %d came back", n, err, len(got.Services))
		}
	}
	var c chunk
	if err := k.journal.Lookup(chunkKey{0, 0}, &c); err != nil {
		t.Fatal(err)
	}
	c.Data[10] ^= 1
	if err := k.journal.Put(chunkKey{0, 0}, &c); err != nil {
		t.Fatal(err)
	}
	if err := k.Read(0, &got); err == nil {
		t.Error("a damaged journal was read")
	}
}

// A child between fork and exec has every descriptor of this process. It does not keep a pin path locked that was released.
func TestReleaseBesideAFork(t *testing.T) {
	path := t.TempDir()
	if err := os.Mkdir(filepath.Join(path, "maps"), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := FindDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := FindDir(path); !errors.Is(err, ErrInUse) {
		t.Errorf("before the release: %v", err)
	}
	child, err := unix.Dup(int(p.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(child)
	p.Release()
	if p, err = FindDir(path); err != nil {
		t.Fatal(err)
	}
	p.Release()
}

// A process that was killed has its lock for some milliseconds more, when its name and number can no longer be found.
func TestStopWaitsForAKilledProcess(t *testing.T) {
	path := t.TempDir()
	for _, name := range []string{"maps", "links"} {
		if err := os.Mkdir(filepath.Join(path, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p, err := FindDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := await(t.Context(), path, time.Millisecond); !errors.Is(err, ErrInUse) {
		t.Errorf("a lock that is not released: %v", err)
	}
	stopped := make(chan error)
	go func() {
		_, err := Stop(context.Background(), path, slog.New(slog.DiscardHandler))
		stopped <- err
	}()
	p.Release()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the pin path is still there: %v", err)
	}
}
