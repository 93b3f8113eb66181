package netlabtest

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// QueueDrops is how many packets the kernel has dropped since it started because the queue of a processor for packets received on loopback and
// veth was full (net.core.netdev_max_backlog; the second column of /proc/net/softnet_stat). All network namespaces share these queues: a flood
// in one of them may cost another one a datagram. A test that counts lost datagrams reads it before and after.
func QueueDrops(t testing.TB) (drops uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		n, err := strconv.ParseUint(strings.Fields(line)[1], 16, 32)
		if err != nil {
			t.Fatal(err)
		}
		drops += n
	}
	return drops
}
