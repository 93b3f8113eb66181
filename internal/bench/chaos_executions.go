package bench

import (
	"encoding/binary"
	"fmt"
	"os"
)

// executions is what the nodes have executed.
type executions struct {
	requests    uint64 // different ones
	twice       uint64 // further executions of a request
	interrupted uint64 // of those: the first execution was the last one of a process that was killed, which could not answer any more
	example     string
}

// executionSize is the length of a record in the files that --executions makes.
const executionSize = 16

// execution is one record.
type execution struct {
	node int
	pid  uint64
	last bool // of its process
}

// readExecutions reads the files of the nodes.
func readExecutions(nodes []*chaosNode) (e executions, err error) {
	all, killed := make([][]byte, len(nodes)), make([]map[uint64]bool, len(nodes))
	for i, n := range nodes {
		if all[i], err = os.ReadFile(n.done); err != nil {
			return e, fmt.Errorf("what %s has executed: %w", n.name, err)
		}
		killed[i] = n.killed
	}
	return executionsOf(all, killed)
}

// executionsOf counts the records of each node. killed are the processes of each node that had no time to answer what they had executed last.
func executionsOf(nodes [][]byte, killed []map[uint64]bool) (e executions, err error) {
	seen := map[uint64][]execution{}
	for i, text := range nodes {
		if len(text)%executionSize != 0 {
			return e, fmt.Errorf("what node %d has executed: the last record is cut off", i+1)
		}
		last := map[uint64]int{} // by process: offset of its last record
		for at := 0; at < len(text); at += executionSize {
			last[binary.BigEndian.Uint64(text[at+8:])] = at
		}
		for at := 0; at < len(text); at += executionSize {
			request, pid := binary.BigEndian.Uint64(text[at:]), binary.BigEndian.Uint64(text[at+8:])
			seen[request] = append(seen[request], execution{node: i, pid: pid, last: last[pid] == at && killed[i][pid]})
		}
	}
	for request, all := range seen {
		e.requests++
		spare := 0
		for _, x := range all {
			if x.last {
				spare++
			}
		}
		spare = min(spare, len(all)-1)
		e.interrupted += uint64(spare)
		e.twice += uint64(len(all) - 1)
		if len(all)-1 > spare && e.example == "" {
			e.example = fmt.Sprintf("request %d of client %d: %+v", uint32(request), request>>32, all)
		}
	}
	return e, nil
}
