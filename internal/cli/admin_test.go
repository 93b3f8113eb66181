package cli

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// Without flags, a part and its clients meet at a Unix socket of the user; a second part gets an error that names both flags, one of which
// several run takes what is free.
func TestDefaultAdminAddresses(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	open := func(part AdminPart, args ...string) ([]*admin.Server, string, error) {
		t.Helper()
		part.metrics = "127.0.0.1:0"
		var f ServeFlags
		var logged strings.Builder
		cmd := &cobra.Command{}
		f.Add(cmd, part)
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		f.directory = filepath.Join(dir, "run")
		servers, err := f.open(slog.New(slog.NewTextHandler(&logged, nil)), admin.Config{Status: func() any { return 1 }})
		t.Cleanup(func() {
			for _, server := range servers {
				server.Close()
			}
		})
		return servers, logged.String(), err
	}
	if servers, logged, err := open(LBPart()); err != nil || len(servers) != 2 || servers[0].Address() != "unix:"+dir+"/run/lb.sock" {
		t.Fatalf("%v, %v\n%s", servers, err, logged)
	}
	for path, want := range map[string]os.FileMode{"run": 0o700, "run/lb.sock": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, path)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if _, _, err := open(LBPart()); err == nil || !strings.Contains(err.Error(), "/run/lb.sock: another process serves it") || !strings.Contains(err.Error(), "its own --admin and --metrics") {
		t.Errorf("a second lb: %v", err)
	}
	for n := range 2 {
		servers, logged, err := open(NATPart())
		if want := fmt.Sprintf("unix:%s/run/nat%s.sock", dir, []string{"", fmt.Sprintf("-%d", os.Getpid())}[n]); err != nil || len(servers) != 2 || servers[0].Address() != want {
			t.Errorf("nat %d: %v, want %s\n%s", n, err, want, logged)
		}
	}
	// Who names --admin gets no second address unasked.
	if servers, logged, err := open(LBPart(), "--admin", "127.0.0.1:0"); err != nil || len(servers) != 1 || !strings.Contains(logged, "probes and metrics only") {
		t.Errorf("%d servers, %v\n%s", len(servers), err, logged)
	}
	if servers, _, err := open(LBPart(), "--admin", "", "--metrics", "127.0.0.1:0"); err != nil || len(servers) != 1 {
		t.Errorf("%d servers, %v", len(servers), err)
	}
	// A directory that others can write to is not trusted; the part runs without.
	if err := os.Chmod(filepath.Join(dir, "run"), 0o777); err != nil {
		t.Fatal(err)
	}
	if servers, logged, err := open(TurnPart()); err != nil || len(servers) != 1 || !strings.Contains(logged, "only it can write to") {
		t.Errorf("%d servers, %v\n%s", len(servers), err, logged)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if _, _, err := open(LBPart(), "--metrics", taken.Addr().String()); err == nil || !strings.Contains(err.Error(), "name another address with --metrics") {
		t.Errorf("a taken address: %v", err)
	}
}

// The next part that begins removes the sockets that killed ones have left, and touches nothing else in the directory.
func TestSocketsOfKilledPartsAreRemoved(t *testing.T) {
	directory, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(directory)
	old := time.Now().Add(-2 * deadAfter)
	listening := map[string]*net.UnixListener{}
	for _, name := range []string{"coap-weirlab-x.1.2.one.sock", "coap.sock", "new.sock", "other"} {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(directory, name), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false) // as by kill -9
		listening[name] = l
		if name != "new.sock" {
			if err := os.Chtimes(filepath.Join(directory, name), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	defer listening["coap.sock"].Close()
	for _, name := range []string{"coap-weirlab-x.1.2.one.sock", "new.sock", "other"} {
		listening[name].Close()
	}
	if err := os.WriteFile(filepath.Join(directory, "file.sock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := ServeFlags{part: TurnPart(), directory: directory, given: func(string) bool { return false }}
	server, err := f.openControl(slog.New(slog.DiscardHandler), admin.Config{Part: "turn", Status: func() any { return 1 }})
	if err != nil || server == nil {
		t.Fatalf("%v, %v", server, err)
	}
	defer server.Close()
	entries, err := os.ReadDir(directory)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"coap.sock", "file.sock", "new.sock", "other", "turn.sock"}; !slices.Equal(names, want) {
		t.Errorf("left are %q, want %q", names, want)
	}
}

// Network namespaces share the file system, and each has its own default socket.
func TestRootSocketsOfNamespaces(t *testing.T) {
	lab := netlabtest.Up(t, netlab.Topology{Name: "sockets", Namespaces: []netlab.Namespace{{Name: "a"}, {Name: "b"}}})
	seen := map[string]bool{LBPart().socket("/run/weir"): true}
	for _, name := range []string{"a", "b"} {
		var socket string
		if err := lab.Namespace(name).Do(func() error { socket = LBPart().socket("/run/weir"); return nil }); err != nil {
			t.Fatal(err)
		}
		if seen[socket] || !strings.HasPrefix(socket, "/run/weir/lb-") {
			t.Errorf("%s: %s, others %v", name, socket, seen)
		}
		seen[socket] = true
	}
}
