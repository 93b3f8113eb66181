package snat

import (
	"math"
	"time"
)

// counter is a stage at work: how many connections and ports each key has in use.
type counter struct {
	stage
	cells  []cell
	by     place   // steps in cells
	room   int32   // connections per cell
	span   int32   // ports per cell, those held down included
	peak   int32   // in one cell, so far
	varies []int32 // room of each node, where it differs or grows
	grows  []bool  // a node's growth is on its way
	pool   int64   // ports that are not allocated yet
	active int64   // connections, all keys
	busy   int64   // ports in use or held down, all keys
	result StageRun
}

type cell struct{ active, busy int32 }

// place says through which of each level's owners a connection goes.
type place struct{ replica, node, dst, address, serverNode, server int }

func newCounter(s Scenario, st stage) counter {
	c := counter{stage: st, result: StageRun{Name: st.name, Kind: string(st.kind), Capacity: st.total(), Ports: st.ports * st.owners}}
	dests, owners := 1, int(st.owners)
	switch {
	case st.byAddress:
		dests, c.by.address = s.DestinationIPs, 1
	case st.byDest:
		dests, c.by.dst = s.Destinations, 1
	case st.byServer:
		dests, c.by.server = s.Servers, 1
	}
	switch st.level {
	case replicaLevel:
		c.by.replica = dests
	case nodeLevel:
		c.by.node = dests
	case serverNodeLevel:
		c.by.serverNode = dests
	case serverLevel:
		c.by.server = dests
	}
	c.cells = make([]cell, owners*dests)
	c.room = clamp(st.keys * st.perKey / int64(dests))
	c.span = math.MaxInt32
	if st.ports > 0 {
		c.span = clamp(st.ports / int64(dests))
	}
	switch {
	case st.growing != nil:
		c.grows, c.varies, c.pool = make([]bool, st.owners), make([]int32, st.owners), st.growing.pool
		for i := range c.varies {
			if c.pool >= st.growing.start {
				c.varies[i] = int32(st.growing.start)
				c.pool -= st.growing.start
			}
		}
	case st.perNode != nil:
		c.varies = make([]int32, st.owners)
		for i, n := range st.perNode {
			c.varies[i] = clamp(n / int64(dests))
		}
	}
	c.result.PerKey = int64(c.room)
	return c
}

// cellsOf is how many cells a stage needs.
func (s Scenario) cellsOf(st stage) int64 {
	switch {
	case st.byAddress:
		return st.owners * int64(s.DestinationIPs)
	case st.byDest:
		return st.owners * int64(s.Destinations)
	case st.byServer:
		return st.owners * int64(s.Servers)
	}
	return st.owners
}

func clamp(n int64) int32 { return int32(min(n, math.MaxInt32)) }

// at finds the cell of a connection.
func (c *counter) at(p *place) *cell {
	return &c.cells[p.replica*c.by.replica+p.node*c.by.node+p.dst*c.by.dst+p.address*c.by.address+p.serverNode*c.by.serverNode+p.server*c.by.server]
}

// free reports whether a cell has room for one more.
func (c *counter) free(where *cell, node int) bool {
	room, span := c.room, c.span
	if c.varies != nil {
		room = c.varies[node]
		span = min(span, room)
	}
	return where.active < room && where.busy < span
}

func (c *counter) take(where *cell) {
	where.active++
	where.busy++
	c.peak = max(c.peak, where.active)
	c.active++
	c.busy++
	c.result.Peak = max(c.result.Peak, c.active)
	c.result.PeakHeld = max(c.result.PeakHeld, c.busy)
}

func (c *counter) inactive(where *cell) {
	where.active--
	c.active--
}

func (c *counter) idleAgain(where *cell) {
	where.busy--
	c.busy--
}

// refuse counts an attempt without room.
func (c *counter) refuse(now uint64) {
	if c.result.Refused++; c.result.FirstRefused == nil {
		at := float64(now) / 1e9
		c.result.FirstRefused = &at
	}
}

// sample adds a reading to the stage's series.
func (c *counter) sample() {
	c.result.Active = append(c.result.Active, c.active)
	c.result.Busy = append(c.result.Busy, c.busy)
}

// wantsMore reports whether a growing allocation should grow: an eighth is left, and no growth is on its way.
func (c *counter) wantsMore(where *cell, node int) bool {
	if c.grows == nil || c.grows[node] {
		return false
	}
	room := int64(c.varies[node])
	return int64(where.busy)*8 >= room*7 && room > 0 && 2*room <= c.growing.max && c.pool >= room
}

// double grows a node's allocation, if the pool still has the room.
func (c *counter) double(node int) {
	c.grows[node] = false
	if room := int64(c.varies[node]); c.pool >= room && 2*room <= c.growing.max {
		c.pool -= room
		c.varies[node] *= 2
	}
}

// ending is how a connection ends.
type ending uint8

const (
	byFIN ending = iota
	byRST
	abandoned
	endings
)

func (c *counter) hold(how ending) time.Duration {
	switch how {
	case byFIN:
		return c.fin
	case byRST:
		return c.rst
	default:
		return c.idle
	}
}
