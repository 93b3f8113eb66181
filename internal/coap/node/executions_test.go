package node_test

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/weir-lb/weir/internal/coap/message"
	"github.com/weir-lb/weir/internal/coap/node"
)

// Each request is recorded once, also when it is repeated, and its answer says which one it was. A node without the file has no such resource.
func TestExecutions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "executed")
	p := dial(t, serve(t, node.Config{Listen: []string{"127.0.0.1:0"}, Workers: 1, Executions: file}))
	const serials = "\x00\x00\x00\x07\x00\x00\x00\x09"
	request := p.request(message.POST, "/executions", serials+"more")
	for range 2 {
		p.send(request)
		if m := p.receive(); m.Code != message.Changed || string(m.Payload) != serials {
			t.Errorf("%s %q", m.Code, m.Payload)
		}
	}
	p.send(p.request(message.POST, "/executions", serials[:7]))
	if m := p.receive(); m.Code != message.BadRequest {
		t.Errorf("a request without a serial number: %s", m.Code)
	}
	text, err := os.ReadFile(file)
	if err != nil || len(text) != node.ExecutionSize || string(text[:8]) != serials || binary.BigEndian.Uint64(text[8:]) != uint64(os.Getpid()) {
		t.Errorf("recorded: %x, %v", text, err)
	}
	none := dial(t, serve(t, node.Config{Listen: []string{"127.0.0.1:0"}, Workers: 1}))
	if m := none.do(message.POST, "/executions"); m.Code != message.NotFound {
		t.Errorf("without a file: %s", m.Code)
	}
	if _, err := node.Open(node.Config{Listen: []string{"127.0.0.1:0"}, Executions: t.TempDir()}); err == nil {
		t.Error("a directory is taken for the file")
	}
}
