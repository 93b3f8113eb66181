package nfqueue

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/steering/flow"
	"github.com/weir-lb/weir/internal/steering/lb"
	"github.com/weir-lb/weir/internal/steering/packet"
)

// captureFile holds the first 128 bytes of each frame of fragmented UDP, IPv4 and IPv6, as a kernel sent it to the VIPs of a
// lab. TestRootNFQCapture -update makes it again.
const captureFile = "testdata/fragmented-udp.pcapng"

// captured is one frame's IP packet, with the datagram that it is a part of.
type captured struct {
	data   []byte
	length int
	of     flow.FragmentKey
}

func readCapture(t *testing.T, text []byte) []captured {
	t.Helper()
	r, err := packet.NewCaptureReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var all []captured
	for {
		c, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		var p packet.Packet
		if err == nil {
			err = packet.ParseCaptured(c, &p)
		}
		if err != nil {
			t.Fatal(err)
		}
		if p.First || p.Later {
			all = append(all, captured{bytes.Clone(p.Data), p.Length, p.Fragment})
		}
	}
}

// replay sends packets through a queue in memory and returns what each datagram's fragments got: marks, 0 for a drop.
func replay(t *testing.T, spec string, packets []captured) (map[flow.FragmentKey]map[uint32]int, Stats) {
	t.Helper()
	d, q := one(t, spec, func() time.Duration { return 0 })
	owner := map[uint32]flow.FragmentKey{}
	for i := range packets {
		q.mu.Lock()
		owner[q.pushLocked(Packet{Data: packets[i].data, Length: packets[i].length})] = packets[i].of
		q.mu.Unlock()
		if i%7 == 6 || i == len(packets)-1 {
			step(t, d)
		}
	}
	s := d.Stats()
	if err := d.workers[0].finish(); err != nil {
		t.Fatal(err)
	}
	fate := map[flow.FragmentKey]map[uint32]int{}
	for _, write := range q.writes {
		for _, v := range write {
			if fate[owner[v.ID]] == nil {
				fate[owner[v.ID]] = map[uint32]int{}
			}
			fate[owner[v.ID]][v.Mark]++
		}
	}
	return fate, s
}

func TestReplay(t *testing.T) {
	text, err := os.ReadFile(captureFile)
	if err != nil {
		t.Fatal(err)
	}
	replayCapture(t, readCapture(t, text))
}

// replayCapture holds a capture, in order and shuffled, to this: with room each datagram goes to one backend whole, and to
// the same in any order; without, it goes whole or not at all, and what is dropped is counted.
func replayCapture(t *testing.T, packets []captured) {
	t.Helper()
	pieces := map[flow.FragmentKey]int{}
	for i := range packets {
		pieces[packets[i].of]++
	}
	if len(pieces) < 60 || len(packets) < 3*len(pieces) {
		t.Fatalf("the capture holds %d fragments of %d datagrams", len(packets), len(pieces))
	}
	spec := worldSpec("", 0, 1, 2, 3)
	roomy := strings.Replace(spec, "held_fragments: 256", "held_fragments: 1024", 1)
	tight := strings.Replace(spec, "held_fragments: 256, held_per_datagram: 64", "held_fragments: 6, held_per_datagram: 3", 1)
	inOrder, _ := replay(t, roomy, packets)
	marks := map[uint32]bool{}
	for key, fate := range inOrder {
		for mark := range fate {
			marks[mark] = true
		}
		if len(fate) != 1 {
			t.Errorf("in order: %v went to %v", key.ID, fate)
		}
	}
	if len(marks) != 4 || marks[0] {
		t.Errorf("in order: marks %v", marks)
	}
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 99))
		shuffled := append([]captured(nil), packets...)
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		fates, s := replay(t, roomy, shuffled)
		if got := fmt.Sprint(fates); got != fmt.Sprint(inOrder) {
			t.Errorf("seed %d: shuffled, the datagrams went elsewhere", seed)
		}
		if s.Queues[0].HeldReleased == 0 || s.Queues[0].Held != 0 {
			t.Errorf("seed %d: %+v", seed, s.Queues[0])
		}
		fates, s = replay(t, tight, shuffled)
		dropped, whole := uint64(0), 0
		for key, fate := range fates {
			n := 0
			for mark, count := range fate {
				n += count
				if mark == 0 {
					dropped += uint64(count)
				} else {
					whole++
				}
			}
			if len(fate) != 1 || n != pieces[key] {
				t.Errorf("seed %d: of %d fragments of a datagram: %v", seed, pieces[key], fate)
			}
		}
		counted := s.Queues[0].HeldAbandoned + s.Queues[0].HeldEvicted + uint64(s.Queues[0].Held)
		for reason, n := range s.Reasons {
			if reasonDrops(reason) {
				counted += n
			}
		}
		if dropped == 0 || whole == 0 || counted != dropped {
			t.Errorf("seed %d: %d fragments dropped, %d counted; %d datagrams whole", seed, dropped, counted, whole)
		}
	}
}

func reasonDrops(reason int) bool { return lb.Reason(reason).Action() == lb.Drop }
