package cli

import (
	"net"
	"path/filepath"
	"testing"
)

// A process that was killed leaves its socket's file behind: nothing answers there.
func TestOnlySocketsThatAnswerAreOffered(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lb.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	if !answers(path) {
		t.Error("not answered while a process listens")
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if answers(path) {
		t.Error("answered by a file")
	}
}
