package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// asNobody runs f on a thread of user and group 65534, which ends with it. Sockets that f opens on its own goroutine belong to nobody.
// The main thread cannot end and keeps these ids, with what the kernel asks of it about the whole process: for an [OwnProcess].
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
	if !clitest.OwnProcess(t) {
		return
	}
	file := filepath.Join(t.TempDir(), "weir.yaml")
	addresses := clitest.FreeAddresses(t, 5)
	if err := os.WriteFile(file, []byte(clitest.LBConfig(addresses[0], addresses[1])), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"lb":   {"lb", "run", "-c", file},
		"nat":  {"nat", addresses[2], addresses[3]},
		"coap": {"coap", "server", "--dtls-only", "--dtls", "127.0.0.1:0", "--workers", "1"},
		"turn": {"turn", "gateway", "turn://u:p@" + addresses[4], "--workers", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			metrics, open := clitest.FreeTCP(t).String(), clitest.FreeTCP(t).String()
			p := clitest.Start(t, name, append(args, "--metrics", metrics)...)
			var served []v1.Route
			if err := p.Admin.Get(t.Context(), "/routes", nil, &served); err != nil {
				t.Fatal(err)
			}
			if len(served) < 8 {
				t.Fatalf("only %d routes: %+v", len(served), served)
			}
			if err := unix.Chmod(filepath.Dir(p.Socket), 0o755); err != nil { // the socket itself has to refuse
				t.Fatal(err)
			}
			asNobody(t, func() error {
				if _, err := answer("unix", p.Socket, http.MethodGet, "/livez"); !errors.Is(err, unix.EACCES) {
					return fmt.Errorf("the Unix socket: %w, want permission denied", err)
				}
				return refusesAll(metrics, name, served)
			})
			// The same part with an address over TCP and no token.
			p.Stop()
			startOpen(t, open, append(args, "--admin", open)...)
			asNobody(t, func() error { return refusesAll(open, name, served) })
		})
	}
}

// refusesAll requests every route over TCP.
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
func startOpen(t *testing.T, at string, args ...string) *clitest.LockedBuffer {
	t.Helper()
	out := new(clitest.LockedBuffer)
	cmd := exec.Command(os.Args[0], args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := clitest.StartChild(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait()); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	})
	clitest.WaitFor(t, out, `msg=admin address=`+regexp.QuoteMeta(at))
	return out
}

// A client that is pointed at another part says so, and so it does where it lacks the token.
func TestClientsKnowTheirPart(t *testing.T) {
	at, addresses := clitest.FreeTCP(t).String(), clitest.FreeAddresses(t, 1)
	out := startOpen(t, at, "turn", "gateway", "turn://u:p@"+addresses[0], "--workers", "1", "--admin", at, "--admin-token-file", clitest.TokenFile(t))
	for _, args := range [][]string{{"lb", "status"}, {"lb", "show"}, {"lb", "flows"}, {"lb", "drain", "x"}} {
		output := clitest.WantWeir(t, cli.ExitFailure, append(args, "--admin", at, "--admin-token-file", clitest.TokenFile(t))...)
		if !strings.Contains(output, at+" is weir turn, not weir lb; name the right --admin") {
			t.Errorf("%v: %s", args, output)
		}
	}
	if output := clitest.WantWeir(t, cli.ExitFailure, "turn", "users", "--admin", at); !strings.Contains(output, "missing or wrong token") {
		t.Errorf("without the token: %s", output)
	}
	clitest.WantWeir(t, 0, "turn", "users", "--admin", at, "--admin-token-file", clitest.TokenFile(t))
	t.Setenv(cli.EnvAdminToken, clitest.TestToken)
	clitest.WantWeir(t, 0, "turn", "users", "--admin", at)
	if strings.Contains(out.String(), clitest.TestToken) {
		t.Errorf("the token is in the log:\n%s", out)
	}
}
