package turn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pion/stun/v4"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

// startTurnserver runs coturn with user1:passwd1 on loopback until the test ends.
func startTurnserver(t *testing.T) (netip.AddrPort, *clitest.LockedBuffer) {
	t.Helper()
	netlabtest.Tools(t, "turnserver")
	at, dir, out := netlabtest.UDPAddress(t), t.TempDir(), new(clitest.LockedBuffer)
	cmd := exec.Command("turnserver", "-n", "--listening-ip=127.0.0.1", "--relay-ip=127.0.0.1", fmt.Sprintf("--listening-port=%d", at.Port()),
		"--lt-cred-mech", "--user=user1:passwd1", "--realm=weir.test", "--allow-loopback-peers", "--no-cli", "--no-tls", "--no-dtls", "--no-rfc5780",
		"--log-file=stdout", "--simple-log", "--verbose", "--pidfile="+filepath.Join(dir, "pid"), "--userdb="+filepath.Join(dir, "db"))
	cmd.Stdout, cmd.Stderr = out, out
	if err := clitest.StartChild(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	conn, err := net.Dial("udp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for end := time.Now().Add(time.Minute); ; {
		conn.Write(stun.MustBuild(stun.TransactionID, stun.BindingRequest).Raw)
		conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := conn.Read(make([]byte, 1500)); err == nil {
			return at, out
		}
		if time.Now().After(end) {
			t.Fatalf("turnserver does not answer:\n%s", out)
		}
	}
}

// echoPeer answers each datagram with "echo:" before it.
func echoPeer(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			conn.WriteTo(append([]byte("echo:"), buffer[:n]...), from)
		}
	}()
	return "udp://" + conn.LocalAddr().String()
}

// weirTurnCat is `weir turn cat` as a process.
func weirTurnCat(stdin string, env []string, args ...string) (cmd *exec.Cmd, stdout, stderr *clitest.LockedBuffer) {
	cmd = exec.Command(os.Args[0], append([]string{"turn", "cat"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	stdout, stderr = new(clitest.LockedBuffer), new(clitest.LockedBuffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd, stdout, stderr
}

func TestTurnCatStdio(t *testing.T) {
	server, _ := startTurnserver(t)
	peer := echoPeer(t)
	file := filepath.Join(t.TempDir(), "ice.json")
	if err := os.WriteFile(file, []byte(`{"iceServers":[{"username":"user1","credential":"passwd1"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ env, args []string }{
		"uri":         {nil, []string{"-", "turn://user1:passwd1@" + server.String() + "?transport=udp"}},
		"tcp":         {nil, []string{"file://stdin", "turn://user1:passwd1@" + server.String() + "?transport=tcp"}},
		"flags":       {nil, []string{"-", "turn:" + server.String(), "--user", "user1", "--password", "passwd1"}},
		"environment": {[]string{"WEIR_TURN_USER=user1", "WEIR_TURN_PASSWORD=passwd1"}, []string{"-", "turn:" + server.String()}},
		"file":        {nil, []string{"-", "turn:" + server.String(), "--credentials", file}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append(test.args[:2:2], peer)
			cmd, stdout, stderr := weirTurnCat("", test.env, append(append(args, test.args[2:]...), "--json", "--linger", "10ms")...)
			in, err := cmd.StdinPipe()
			clitest.Must(t, err)
			clitest.Must(t, cmd.Start())
			_, err = io.WriteString(in, "hello\n")
			clitest.Must(t, err)
			netlabtest.Eventually(t, "the answer", func() bool { return stdout.String() != "" })
			clitest.Must(t, in.Close())
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, stderr)
			}
			if got := stdout.String(); got != "echo:hello\n" {
				t.Errorf("%q came back\n%s", got, stderr)
			}
			if !strings.Contains(stderr.String(), `"up_packets": 1`) {
				t.Errorf("no counters in\n%s", stderr)
			}
		})
	}
}

func TestTurnCatExitCodes(t *testing.T) {
	server, _ := startTurnserver(t)
	for name, test := range map[string]struct {
		code int
		want string
		args []string
	}{
		"wrong password": {1, `is "user1" the right user`, []string{"-", "turn://user1:wrong@" + server.String(), "udp://127.0.0.1:9"}},
		"nobody there":   {1, "no program listens", []string{"-", "turn://user1:passwd1@127.0.0.9:1", "udp://127.0.0.1:9"}},
		"no credentials": {2, "--user and --password", []string{"-", "turn:" + server.String(), "udp://127.0.0.1:9"}},
		"kubernetes":     {2, "write k8s://NAMESPACE", []string{"-", "k8s://stunner/gateway", "udp://127.0.0.1:9"}},
		"no cluster":     {2, "belong to a gateway", []string{"-", "turn:127.0.0.1", "udp://127.0.0.1:9", "--discovery", "x:1"}},
		"arguments":      {2, "LISTEN TURN-URI PEER", []string{"-"}},
		"listen":         {2, "LISTEN", []string{"9000", "turn://u:p@127.0.0.1", "udp://127.0.0.1:9"}},
		"half":           {2, "belong together", []string{"-", "turn:127.0.0.1", "udp://127.0.0.1:9", "--user", "x"}},
		"too many":       {2, "excludes", []string{"-", "turn:127.0.0.1", "udp://127.0.0.1:9", "--user", "x", "--credentials", "y"}},
		"no file":        {2, "read credentials", []string{"-", "turn:127.0.0.1", "udp://127.0.0.1:9", "--credentials", "/does/not/exist"}},
		"udp to tcp":     {2, "needs a stream", []string{"udp://127.0.0.1:0", "turn://u:p@127.0.0.1?transport=tcp", "tcp://127.0.0.1:9"}},
		"log":            {2, "--log", []string{"-", "turn://u:p@127.0.0.1", "udp://127.0.0.1:9", "--log", "all:LOUD"}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, _, stderr := weirTurnCat("", nil, test.args...)
			err := cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != test.code || !strings.Contains(stderr.String(), test.want) {
				t.Errorf("%v, want code %d and %q:\n%s", err, test.code, test.want, stderr)
			}
			if strings.Contains(stderr.String(), "passwd1") || strings.Contains(stderr.String(), ":wrong@") {
				t.Errorf("shows the password:\n%s", stderr)
			}
		})
	}
}

// Where the input ends at once, the answer is waited for.
func TestTurnCatLingers(t *testing.T) {
	clitest.TakesSeconds(t)
	server, _ := startTurnserver(t)
	cmd, stdout, stderr := weirTurnCat("hello\n", nil, "-", "turn://user1:passwd1@"+server.String(), echoPeer(t), "--linger", "5s")
	if err := cmd.Run(); err != nil || stdout.String() != "echo:hello\n" {
		t.Errorf("%v, %q came back\n%s", err, stdout, stderr)
	}
}

// Both signals end it with every allocation given back: coturn logs a Refresh with lifetime 0 for each.
func TestTurnCatEndsCleanly(t *testing.T) {
	server, output := startTurnserver(t)
	peer := echoPeer(t)
	for i, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		listen := netlabtest.UDPAddress(t)
		cmd, stdout, stderr := weirTurnCat("", nil, "udp://"+listen.String(), "turn://user1:passwd1@"+server.String(), peer, "--json", "--log", "all:ERROR")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		const clients = 5
		for k := range clients {
			conn, err := net.Dial("udp", listen.String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			answered := false
			for end := time.Now().Add(time.Minute); !answered && time.Now().Before(end); {
				if _, err := fmt.Fprintf(conn, "%d", k); err != nil {
					time.Sleep(10 * time.Millisecond) // not listening yet
					continue
				}
				conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
				b := make([]byte, 100)
				n, err := conn.Read(b)
				answered = err == nil && string(b[:n]) == fmt.Sprint("echo:", k)
			}
			if !answered {
				t.Fatalf("client %d got no answer:\n%s", k, stderr)
			}
		}
		cmd.Process.Signal(signal)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v\n%s", signal, err, stderr)
		}
		var got struct {
			Clients     int    `json:"clients"`
			Sessions    int    `json:"sessions"`
			ClientsEver uint64 `json:"clients_ever"`
			UpPackets   uint64 `json:"up_packets"`
			DownPackets uint64 `json:"down_packets"`
		}
		if err := json.NewDecoder(bytes.NewBufferString(stdout.String())).Decode(&got); err != nil {
			t.Fatalf("%v in %q", err, stdout)
		}
		if got.Clients != 0 || got.Sessions != 0 || got.ClientsEver != clients || got.UpPackets < clients || got.DownPackets < clients {
			t.Errorf("%+v", got)
		}
		want := clients * (i + 1)
		end := time.Now().Add(time.Minute)
		for ; strings.Count(output.String(), "lifetime=0") < want && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		}
		if n := strings.Count(output.String(), "lifetime=0"); n != want {
			t.Errorf("%v: %d allocations given back, want %d", signal, n, want)
		}
	}
}
