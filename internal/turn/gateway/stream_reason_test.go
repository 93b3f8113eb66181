package gateway

import (
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDeadClientIsNoGuestTimeout: ETIMEDOUT of the kernel means that the client no longer acknowledges anything. It is not
// counted as a timeout of this server, although its error says Timeout.
func TestDeadClientIsNoGuestTimeout(t *testing.T) {
	dead := &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", unix.ETIMEDOUT)}
	if !dead.Timeout() {
		t.Fatal("net does not call it a timeout: the test has no point")
	}
	for _, c := range []struct {
		err         error
		read, write streamReason
	}{
		{dead, connectionBroken, connectionBroken},
		{fmt.Errorf("TLS: %w", dead), connectionBroken, connectionBroken},
		{&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}, guestTimeout, clientSlow},
		{io.EOF, connectionClosed, connectionBroken},
		{errNotTurn, streamNotTurn, connectionBroken},
	} {
		if read, write := readReason(c.err), writeReason(c.err); read != c.read || write != c.write {
			t.Errorf("%v: read ends by %v, write by %v; want %v, %v", c.err, read, write, c.read, c.write)
		}
	}
}
