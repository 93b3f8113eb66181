package nfqueue

import (
	"encoding/binary"
	"math"
	"math/bits"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// pairs estimates how many pairs of addresses a queue saw lately, by linear counting (Whang and others, 1990): each pair
// sets one bit. Queues are balanced by pair, so few pairs explain an uneven spread.
type pairs struct {
	now, before [pairWords]uint64
	since       time.Duration
}

const (
	pairWords = 64
	pairBits  = pairWords * 64
	// pairWindow is how long a bit counts, at least; twice that at most.
	pairWindow = 5 * time.Second
)

func (p *pairs) add(k *flow.Key) {
	x := binary.LittleEndian.Uint64(k.Src[8:]) ^ bits.RotateLeft64(binary.LittleEndian.Uint64(k.Src[:]), 7) ^
		bits.RotateLeft64(binary.LittleEndian.Uint64(k.Dst[8:]), 29) ^ bits.RotateLeft64(binary.LittleEndian.Uint64(k.Dst[:]), 43)
	x = (x ^ x>>32) * 0x9e3779b97f4a7c15
	x = (x ^ x>>29) * 0xbf58476d1ce4e5b9
	p.now[x>>58] |= 1 << (x >> 52 & 63)
}

// estimate is how many there were in the last pairWindow or two; called now and then.
func (p *pairs) estimate(now time.Duration) int {
	set := 0
	for i := range p.now {
		set += bits.OnesCount64(p.now[i] | p.before[i])
	}
	if now-p.since >= pairWindow {
		p.before, p.now = p.now, [pairWords]uint64{}
		p.since = now
	}
	if set >= pairBits {
		set = pairBits - 1
	}
	return int(math.Round(pairBits * math.Log(pairBits/float64(pairBits-set))))
}
