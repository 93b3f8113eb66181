package kernelrelay

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/datapath/ebpf/attach"
	"github.com/weir-lb/weir/internal/datapath/ebpf/ebpftest"
)

// TestRootOffloadFollowsRoutes: what the kernel says about routes, neighbours and interfaces takes no channel out of the
// programs that nothing happened to. While there is no next hop its packets pass to the sockets untouched, and once there is
// one again they are relayed again.
func TestRootOffloadFollowsRoutes(t *testing.T) {
	t.Parallel()
	for _, hook := range ebpftest.Hooks() {
		t.Run(hook.String(), func(t *testing.T) {
			t.Parallel()
			host, index := ebpftest.Namespace(t)
			ebpftest.Do(t, host, func() error { return followRoutes(index, hook) })
		})
	}
}

func followRoutes(index int, hook attach.Hook) error {
	b, err := openRelayBench(hook, index)
	if err != nil {
		return err
	}
	defer b.o.Close()
	channel := modelChannels()[0]
	id, err := b.o.Add(channel.Channel)
	if err != nil {
		return err
	}
	if err := b.o.Permit(id, true); err != nil {
		return err
	}
	g := &frameMaker{Rand: rand.New(rand.NewPCG(1, 1)), model: &relayModel{channels: []modelChannel{channel}, mtu: 1500, partial: hook == attach.HookXDP}, hook: hook}
	copy(g.model.macs[:], []byte{2, 0, 0, 0, 0, 9})
	frame, up := g.frame(), ""
	for up != "up" { // one that is relayed
		frame = g.frame()
		up, _, _ = g.model.frame(frame)
	}
	// after changes something and waits until the programs know it, and until what follows from it is done.
	after := func(change ...string) error {
		before := atomic.LoadUint32(&b.o.tables.control.Routes)
		if out, err := exec.Command("ip", change...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %v: %w: %s", change, err, out)
		}
		for end := time.Now().Add(10 * time.Second); atomic.LoadUint32(&b.o.tables.control.Routes) == before; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				return fmt.Errorf("ip %v: no event arrived", change)
			}
		}
		b.o.mu.Lock()
		b.o.findOuts()
		b.o.mu.Unlock()
		return nil
	}
	for i, step := range []struct {
		change []string
		end    string
	}{
		{[]string{"neigh", "replace", "10.255.0.77", "lladdr", "02:00:00:00:00:77", "dev", "lb0"}, "up"}, // of no one here
		{[]string{"neigh", "del", "10.255.0.2", "dev", "lb0"}, "no_way"},
		{[]string{"neigh", "replace", "10.255.0.2", "lladdr", "02:00:00:00:00:09", "dev", "lb0", "nud", "permanent"}, "up"},
		{[]string{"route", "del", "default"}, "no_way"},
		{[]string{"route", "add", "default", "via", "10.255.0.2"}, "up"},
		{[]string{"link", "set", "lb0", "mtu", "1400"}, "up"},
	} {
		if err := after(step.change...); err != nil {
			return err
		}
		end, verdict, out, err := b.run(frame)
		if err != nil {
			return err
		}
		if end != step.end || verdict != wanted(hook, end) {
			return fmt.Errorf("step %d, after ip %v: %s, verdict %d, want %s", i, step.change, end, int32(verdict), step.end)
		}
		if end != "up" && string(out) != string(frame) {
			return fmt.Errorf("step %d, after ip %v: %s, but changed", i, step.change, end)
		}
	}
	return nil
}
