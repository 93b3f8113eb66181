package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// testToken is what tokenFile holds.
const testToken = "0123456789abcdef"

func tokenFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(testToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// asNobody runs f on a thread of user and group 65534, which ends with it. Sockets that f opens on its own goroutine are nobody's.
// The main thread cannot end and stays nobody's, with what the kernel asks of it about the whole process: for an [ownProcess].
func asNobody(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for ever
		const nobody = 65534
		for _, call := range [][4]uintptr{{unix.SYS_SETGROUPS}, {unix.SYS_SETRESGID, nobody, nobody, nobody}, {unix.SYS_SETRESUID, nobody, nobody, nobody}} {
			if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
				done <- errno
				return
			}
		}
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// answer makes one request on a connection that the calling goroutine opens.
func answer(network, address, method, path string) (*http.Response, error) {
	conn, err := new(net.Dialer).DialContext(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	request, err := http.NewRequest(method, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	return http.ReadResponse(bufio.NewReader(conn), request)
}

// As user nobody, probes and metrics answer, everything else of every part is refused, on whichever address it is served.
func TestRootNobodyIsRefused(t *testing.T) {
	netlabtest.Root(t)
	if !ownProcess(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "weir.yaml")
	addresses := freeAddresses(t, 5)
	if err := os.WriteFile(file, []byte(lbConfig(addresses[0], addresses[1])), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"lb":   {"lb", "run", "-c", file},
		"nat":  {"nat", addresses[2], addresses[3]},
		"coap": {"coap", "server", "--dtls-only", "--dtls", "127.0.0.1:0", "--workers", "1"},
		"turn": {"turn", "gateway", "turn://u:p@" + addresses[4], "--workers", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			metrics, open := freeTCP(t).String(), freeTCP(t).String()
			p := startProcess(t, name, append(args, "--metrics", metrics)...)
			var served []v1.Route
			if err := p.door.Get(t.Context(), "/routes", nil, &served); err != nil {
				t.Fatal(err)
			}
			if len(served) < 8 {
				t.Fatalf("only %d routes: %+v", len(served), served)
			}
			if err := unix.Chmod(filepath.Dir(p.socket), 0o755); err != nil { // the socket itself has to refuse
				t.Fatal(err)
			}
			asNobody(t, func() error {
				if _, err := answer("unix", p.socket, http.MethodGet, "/livez"); !errors.Is(err, unix.EACCES) {
					return fmt.Errorf("the Unix socket: %w, want permission denied", err)
				}
				return refusesAll(metrics, name, served)
			})
			// The same part with an address over TCP and no token.
			p.stop()
			startOpen(t, open, append(args, "--admin", open)...)
			asNobody(t, func() error { return refusesAll(open, name, served) })
		})
	}
}

// refusesAll asks for every route over TCP.
func refusesAll(at, part string, served []v1.Route) error {
	var wrong []error
	for _, route := range served {
		method, path, _ := strings.Cut(route.Pattern, " ")
		response, err := answer("tcp", at, method, path)
		if err != nil {
			return err
		}
		response.Body.Close()
		ok := response.StatusCode == http.StatusOK
		if ok != route.Open || !ok && response.StatusCode != http.StatusForbidden && response.StatusCode != http.StatusNotFound &&
			response.StatusCode != http.StatusMethodNotAllowed || response.Header.Get(v1.PartHeader) != part {
			wrong = append(wrong, fmt.Errorf("%s at %s: %s, part %q", route.Pattern, at, response.Status, response.Header.Get(v1.PartHeader)))
		}
	}
	return errors.Join(wrong...)
}

// startOpen runs weir with an admin address over TCP until the test ends, and waits until it is served.
func startOpen(t *testing.T, at string, args ...string) *lockedBuffer {
	t.Helper()
	out := new(lockedBuffer)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	})
	waitFor(t, out, `msg=admin address=`+regexp.QuoteMeta(at))
	return out
}

// A client that is pointed at another part says so, and so it does where it lacks the token.
func TestClientsKnowTheirPart(t *testing.T) {
	at, addresses := freeTCP(t).String(), freeAddresses(t, 1)
	out := startOpen(t, at, "turn", "gateway", "turn://u:p@"+addresses[0], "--workers", "1", "--admin", at, "--admin-token-file", tokenFile(t))
	for _, args := range [][]string{{"lb", "status"}, {"lb", "show"}, {"lb", "flows"}, {"lb", "drain", "x"}} {
		said := wantWeir(t, exitFailure, append(args, "--admin", at, "--admin-token-file", tokenFile(t))...)
		if !strings.Contains(said, at+" is weir turn, not weir lb; name the right --admin") {
			t.Errorf("%v: %s", args, said)
		}
	}
	if said := wantWeir(t, exitFailure, "turn", "users", "--admin", at); !strings.Contains(said, "missing or wrong token") {
		t.Errorf("without the token: %s", said)
	}
	wantWeir(t, 0, "turn", "users", "--admin", at, "--admin-token-file", tokenFile(t))
	t.Setenv(envAdminToken, testToken)
	wantWeir(t, 0, "turn", "users", "--admin", at)
	if strings.Contains(out.String(), testToken) {
		t.Errorf("the token is in the log:\n%s", out)
	}
}

// Without flags, a part and its clients meet at a Unix socket of the user; a second part gets an error that names both flags, one of which
// several run takes what is free.
func TestDefaultAdminAddresses(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	open := func(part adminPart, args ...string) ([]*admin.Server, string, error) {
		t.Helper()
		part.metrics = "127.0.0.1:0"
		var f serveFlags
		var said strings.Builder
		cmd := &cobra.Command{}
		f.add(cmd, part)
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		f.directory = filepath.Join(dir, "run")
		servers, err := f.open(slog.New(slog.NewTextHandler(&said, nil)), admin.Config{Status: func() any { return 1 }})
		t.Cleanup(func() {
			for _, server := range servers {
				server.Close()
			}
		})
		return servers, said.String(), err
	}
	if servers, said, err := open(lbPart()); err != nil || len(servers) != 2 || servers[0].Address() != "unix:"+dir+"/run/lb.sock" {
		t.Fatalf("%v, %v\n%s", servers, err, said)
	}
	for path, want := range map[string]os.FileMode{"run": 0o700, "run/lb.sock": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, path)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if _, _, err := open(lbPart()); err == nil || !strings.Contains(err.Error(), "/run/lb.sock: another process serves it") || !strings.Contains(err.Error(), "its own --admin and --metrics") {
		t.Errorf("a second lb: %v", err)
	}
	for n := range 2 {
		servers, said, err := open(natPart())
		if want := fmt.Sprintf("unix:%s/run/nat%s.sock", dir, []string{"", fmt.Sprintf("-%d", os.Getpid())}[n]); err != nil || len(servers) != 2 || servers[0].Address() != want {
			t.Errorf("nat %d: %v, want %s\n%s", n, err, want, said)
		}
	}
	// Who names --admin gets no second address unasked.
	if servers, said, err := open(lbPart(), "--admin", "127.0.0.1:0"); err != nil || len(servers) != 1 || !strings.Contains(said, "probes and metrics only") {
		t.Errorf("%d servers, %v\n%s", len(servers), err, said)
	}
	if servers, _, err := open(lbPart(), "--admin", "", "--metrics", "127.0.0.1:0"); err != nil || len(servers) != 1 {
		t.Errorf("%d servers, %v", len(servers), err)
	}
	// A directory that others can write to is not trusted; the part runs without.
	if err := os.Chmod(filepath.Join(dir, "run"), 0o777); err != nil {
		t.Fatal(err)
	}
	if servers, said, err := open(turnPart()); err != nil || len(servers) != 1 || !strings.Contains(said, "only it can write to") {
		t.Errorf("%d servers, %v\n%s", len(servers), err, said)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if _, _, err := open(lbPart(), "--metrics", taken.Addr().String()); err == nil || !strings.Contains(err.Error(), "name another address with --metrics") {
		t.Errorf("a taken address: %v", err)
	}
}

// Network namespaces share the file system, and each has its own default socket.
func TestRootSocketsOfNamespaces(t *testing.T) {
	lab := netlabtest.Up(t, netlab.Topology{Name: "sockets", Namespaces: []netlab.Namespace{{Name: "a"}, {Name: "b"}}})
	seen := map[string]bool{lbPart().socket("/run/weir"): true}
	for _, name := range []string{"a", "b"} {
		var socket string
		if err := lab.Namespace(name).Do(func() error { socket = lbPart().socket("/run/weir"); return nil }); err != nil {
			t.Fatal(err)
		}
		if seen[socket] || !strings.HasPrefix(socket, "/run/weir/lb-") {
			t.Errorf("%s: %s, others %v", name, socket, seen)
		}
		seen[socket] = true
	}
}
