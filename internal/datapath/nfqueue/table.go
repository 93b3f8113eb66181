package nfqueue

import (
	"fmt"
	"io"
	"strings"
)

// kernelTable is the kernel's table of the queues in a thread's network namespace. An open file keeps referring to that
// namespace.
const kernelTable = "/proc/thread-self/net/netfilter/nfnetlink_queue"

// maxTable bounds how many bytes of it are read: 65536 rows.
const maxTable = 65536 * 80

// KernelQueue is the kernel's row about one queue.
type KernelQueue struct {
	PortID      uint32 `json:"port_id"` // of the socket that has the queue
	Waiting     uint32 `json:"waiting" metric:"weir_queue_waiting" help:"Packets that wait for their verdict."`
	CopyRange   uint32 `json:"copy_range"` // bytes
	QueueDrops  uint32 `json:"queue_dropped" metric:"weir_queue_dropped_total" help:"Packets dropped because the queue was full."`
	UserDrops   uint32 `json:"user_dropped" metric:"weir_queue_user_dropped_total" help:"Packets dropped because the socket's buffer was full."`
	LastID      uint32 `json:"last_id"` // number of the last packet
	CopyPackets bool   `json:"-"`       // false: only their metadata
}

// readTable returns the kernel's rows by queue number; no rows if the table is not open.
func (d *Datapath) readTable() (map[uint16]KernelQueue, error) {
	if d.table == nil {
		return nil, nil
	}
	text, err := io.ReadAll(io.NewSectionReader(d.table, 0, maxTable))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", kernelTable, err)
	}
	return parseTable(string(text))
}

func parseTable(text string) (map[uint16]KernelQueue, error) {
	rows := map[uint16]KernelQueue{}
	for line := range strings.Lines(text) {
		var number uint16
		var mode, one int
		var q KernelQueue
		if _, err := fmt.Sscan(line, &number, &q.PortID, &q.Waiting, &mode, &q.CopyRange, &q.QueueDrops, &q.UserDrops, &q.LastID, &one); err != nil {
			return nil, fmt.Errorf("%s: line %q is not as this kernel writes it: %w", kernelTable, strings.TrimSpace(line), err)
		}
		q.CopyPackets = mode == copyPacket
		rows[number] = q
	}
	return rows, nil
}
