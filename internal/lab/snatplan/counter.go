package snatplan

import (
	"math"
	"time"
)

// counter is a stage at work: how many connections and ports each key has in use.
type counter struct {
	stage
	cells  []cell
	dests  int     // cells per owner
	room   int32   // connections per cell
	span   int32   // ports per cell, those held down included
	varies []int32 // room of each node, where it differs or grows
	grows  []bool  // a node's growth is on its way
	pool   int64   // ports that are not allocated yet
	result StageRun
}

type cell struct{ active, busy int32 }

// StageRun is what a stage saw during a simulation.
type StageRun struct {
	Name     string `json:"stage"`
	Peak     int64  `json:"peak"`      // most connections at one time, all keys
	PeakHeld int64  `json:"peak_held"` // most ports at one time that were free for nobody: in use or held down
	Refused  int64  `json:"refused"`   // attempts that it had no room for
	now      int64
	nowBusy  int64
}

func newCounter(s Scenario, st stage) counter {
	c := counter{stage: st, dests: 1, result: StageRun{Name: st.name}}
	if st.byDest {
		c.dests = s.Destinations
	}
	owners := int64(1)
	switch st.level {
	case replicaLevel, nodeLevel:
		owners = st.owners
	default: // where all connections meet; the even spread over servers is one of the package's limits
		st.keys *= st.owners
		st.ports *= st.owners
	}
	c.cells = make([]cell, owners*int64(c.dests))
	c.room = clamp(st.keys * st.perKey / int64(c.dests))
	c.span = math.MaxInt32
	if st.ports > 0 {
		c.span = clamp(st.ports / int64(c.dests))
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
			c.varies[i] = clamp(n / int64(c.dests))
		}
	}
	return c
}

func clamp(n int64) int32 { return int32(min(n, math.MaxInt32)) }

// at finds the cell of a connection, and its owner.
func (c *counter) at(replica, node, dst int) (where *cell, owner int) {
	switch c.level {
	case replicaLevel:
		owner = replica
	case nodeLevel:
		owner = node
	}
	if c.dests == 1 {
		return &c.cells[owner], owner
	}
	return &c.cells[owner*c.dests+dst], owner
}

// free reports whether a cell has room for one more.
func (c *counter) free(where *cell, owner int) bool {
	room, span := c.room, c.span
	if c.varies != nil {
		room = c.varies[owner]
		span = min(span, room)
	}
	return where.active < room && where.busy < span
}

func (c *counter) take(where *cell) {
	where.active++
	where.busy++
	c.result.now++
	c.result.nowBusy++
	c.result.Peak = max(c.result.Peak, c.result.now)
	c.result.PeakHeld = max(c.result.PeakHeld, c.result.nowBusy)
}

func (c *counter) inactive(where *cell) {
	where.active--
	c.result.now--
}

func (c *counter) idleAgain(where *cell) {
	where.busy--
	c.result.nowBusy--
}

// wantsMore reports whether a growing allocation should grow: an eighth is left, and no growth is on its way.
func (c *counter) wantsMore(where *cell, owner int) bool {
	if c.grows == nil || c.grows[owner] {
		return false
	}
	room := int64(c.varies[owner])
	return int64(where.busy)*8 >= room*7 && room > 0 && 2*room <= c.growing.max && c.pool >= room
}

// double grows a node's allocation, if the pool still has the room.
func (c *counter) double(owner int) {
	c.grows[owner] = false
	if room := int64(c.varies[owner]); c.pool >= room && 2*room <= c.growing.max {
		c.pool -= room
		c.varies[owner] *= 2
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
