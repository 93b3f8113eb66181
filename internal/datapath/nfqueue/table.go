package nfqueue

import (
	"fmt"
	"io"
	"strings"
)

// kernelTable is the kernel's own account of the queues in a thread's network namespace, which an open file goes on
// naming.
const kernelTable = "/proc/thread-self/net/netfilter/nfnetlink_queue"

// maxTable bounds what is read of it: 65536 rows.
const maxTable = 65536 * 80

// KernelQueue is the kernel's own account of a queue.
type KernelQueue struct {
	PortID      uint32 `json:"port_id"`       // of the socket that has the queue
	Waiting     uint32 `json:"waiting"`       // packets without a verdict
	CopyRange   uint32 `json:"copy_range"`    // bytes
	QueueDrops  uint32 `json:"queue_dropped"` // found the queue full
	UserDrops   uint32 `json:"user_dropped"`  // found the socket's buffer full
	LastID      uint32 `json:"last_id"`       // number of the last packet
	CopyPackets bool   `json:"-"`             // and not only their metadata
}

// readTable returns the kernel's rows by queue number; none where the table is not open.
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
