package coap

import (
	"context"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/coap/client"
)

// The Californium server that `weir bench run floods` compares with serves Weir's client. Building it puts it where the
// benchmark looks for it.
func TestCaliforniumServer(t *testing.T) {
	clitest.TakesSeconds(t)
	classes := buildCalifornium(t)
	address := clitest.FreeAddresses(t, 1)[0]
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command("java", "-Xmx128m", "-cp", classes, "weir.Server", host, port, "100")
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for ctx.Err() == nil { // it does not report when it listens
		if _, err = client.Do(ctx, client.RequestConfig{URI: "coaps://" + address + "/", Timeout: 2 * time.Second}); err == nil {
			return
		}
	}
	t.Error(err)
}
