package node

import (
	"fmt"
	"net/netip"
	"testing"
)

// A source that names a new device with every request takes the place of its own devices, not that of another source.
func TestReceiveHistoryIsBounded(t *testing.T) {
	table := receives{devices: map[string]int32{}}
	other, flood := netip.MustParseAddrPort("192.0.2.1:5"), netip.MustParseAddrPort("198.51.100.1:5")
	table.enter("other", received{"first", 1, other})
	for i := range 3 * maxDevices {
		table.enter(fmt.Sprint("device", i), received{"some request with a long name", int64(i), flood})
	}
	if len(table.devices) != maxDevices || table.bytes > maxReceiveBytes || len(table.slots) > maxDevices+1 {
		t.Errorf("%d devices, %d bytes, %d slots", len(table.devices), table.bytes, len(table.slots))
	}
	if history := table.enter("other", received{"second", 2, other}); len(history) != 2 || history[1].id != "first" {
		t.Errorf("%+v", history)
	}
	for i := range 100 {
		table.enter("other", received{fmt.Sprint(i), int64(i), other})
	}
	if history := table.enter("other", received{"newest", 3, other}); len(history) != maxReceived || history[0].id != "newest" || history[1].id != "99" {
		t.Errorf("%+v", history)
	}
	for name := range table.devices {
		table.drop(table.devices[name])
	}
	if table.bytes != 0 || table.order.Len() != 0 {
		t.Errorf("%d bytes, %d in order after the last", table.bytes, table.order.Len())
	}
}
