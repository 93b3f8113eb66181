package nfqueue

import (
	"encoding/binary"
	"math"
	"math/bits"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
)

// pairs estimates how many address pairs a queue has seen recently, by linear counting (Whang and others, 1990): each pair
// sets one bit. The kernel balances queues by address pair, so a small number of pairs explains an uneven load.
type pairs struct {
	now, before [pairWords]uint64
	since       time.Duration
}

const (
	pairWords = 64
	pairBits  = pairWords * 64
	// pairWindow is the minimum time for which a bit counts; the maximum is twice that.
	pairWindow = 5 * time.Second
)

func (p *pairs) add(k *flow.Key) {
	x := binary.LittleEndian.Uint64(k.Src[8:]) ^ bits.RotateLeft64(binary.LittleEndian.Uint64(k.Src[:]), 7) ^
		bits.RotateLeft64(binary.LittleEndian.Uint64(k.Dst[8:]), 29) ^ bits.RotateLeft64(binary.LittleEndian.Uint64(k.Dst[:]), 43)
	x = (x ^ x>>32) * 0x9e3779b97f4a7c15
	x = (x ^ x>>29) * 0xbf58476d1ce4e5b9
	p.now[x>>58] |= 1 << (x >> 52 & 63)
}

// estimate returns the number of pairs in the last one to two pairWindows. It must be called from time to time.
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
