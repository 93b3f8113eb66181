package measuring

import (
	"os"
	"testing"
)

// The command of a report can be pasted into a shell.
func TestTypedCommandIsQuoted(t *testing.T) {
	before := os.Args
	t.Cleanup(func() { os.Args = before })
	os.Args = []string{"/usr/bin/weir", "tcp", "client", "--id", "it's $HOME", "--to", "192.0.2.1:10000,[2001:db8::1]:1", "--zone", ""}
	if got, want := TypedCommand(), `weir tcp client --id 'it'\''s $HOME' --to '192.0.2.1:10000,[2001:db8::1]:1' --zone ''`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
