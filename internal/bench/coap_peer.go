package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/programs"
)

// CoapPeers names the servers that [Coap] can compare with.
func CoapPeers() []string { return []string{peerScandium} }

// scandiumClasses finds the class path of Californium's server: what the tests of Weir have built in the user's cache, or
// $WEIR_SCANDIUM.
func scandiumClasses() (string, error) {
	if path := os.Getenv("WEIR_SCANDIUM"); path != "" {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	built, err := filepath.Glob(filepath.Join(cache, "weir", "californium-*", "classes", "weir", "Server.class"))
	if err != nil || len(built) == 0 {
		return "", errors.Join(err, errors.New("not built; run: go test -run TestCaliforniumServer ./internal/cli/coap, or set WEIR_SCANDIUM to its class path"))
	}
	home := filepath.Dir(filepath.Dir(filepath.Dir(built[len(built)-1])))
	return filepath.Join(home, "classes") + ":" + filepath.Join(home, "dependency", "*"), nil
}

func scandiumFound() error {
	if _, err := exec.LookPath("java"); err != nil {
		return errors.New("java is not in the PATH")
	}
	_, err := scandiumClasses()
	return err
}

// scandiumServer is the command of Californium's server at an address, with so many DTLS connections. It prints READY.
func scandiumServer(at netip.AddrPort, connections int) (*exec.Cmd, error) {
	classes, err := scandiumClasses()
	if err != nil {
		return nil, err
	}
	return exec.Command("java", "-Xmx400m", "-cp", classes, "weir.Server", at.Addr().String(), strconv.Itoa(int(at.Port())), strconv.Itoa(connections)), nil //nolint:gosec // the class path that the user names
}

// scandiumReady is nil once that server has said so.
func scandiumReady(output *programs.LastLines) func() error {
	return func() error {
		if !strings.Contains(output.LastOutput(), "READY") {
			return errors.New("not ready")
		}
		return nil
	}
}

// startPeer starts the peer's server, which has room for twice as many sessions as there are clients.
func (p coapPath) startPeer(ctx context.Context, s *programs.Stage, at netip.AddrPort, clients int) (*exec.Cmd, error) {
	cmd, err := scandiumServer(at, 2*clients)
	if err != nil {
		return nil, err
	}
	output := new(programs.LastLines)
	cmd.Stdout, cmd.Stderr = output, output
	if err := s.Running.Start(nil, cmd); err != nil {
		return nil, err
	}
	if err := until(ctx, programs.ReadyTimeout, scandiumReady(output)); err != nil {
		return nil, fmt.Errorf("%w%s", err, output.LastOutput())
	}
	return cmd, nil
}

// answered is how many requests the clients had answered when they reported it next, a moment ago. The peer's server counts none.
func (l *coapLoad) answered(ctx context.Context) (uint64, error) {
	const look = 2 * time.Millisecond // of the 100 ms between two reports
	for before := len(l.taken()); ; {
		if taken := l.taken(); len(taken) > before {
			return taken[len(taken)-1].Total.Requests, nil
		}
		if err := errors.Join(l.failure(), programs.Sleep(ctx, look)); err != nil {
			return 0, err
		}
	}
}
