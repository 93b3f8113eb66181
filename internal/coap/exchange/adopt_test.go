package exchange

import (
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/coap/message"
)

// process is an Endpoint with what outlives it.
type process struct {
	*Endpoint
	*journal
	session *Session
}

func nextProcess(memory, log []byte, number int) *process {
	j := &journal{serve: func(m *message.Message, r *Reply) { r.Text(message.Changed, "done") }}
	p := &process{New(Config{Supported: known, Seed: 7, Log: log, LogNumber: number}, &outbox{}, j, nil), j, new(Session)}
	p.Adopt(p.session, memory)
	return p
}

func (p *process) receive(t *testing.T, in []byte, now time.Duration) string {
	t.Helper()
	return show(t, p.Receive(p.session, in, make([]byte, 0, 256), now))
}

// A repeated request gets its answer in the next process, and is not executed again; message ids of the server go on.
func TestRepeatedRequestsAfterARestart(t *testing.T) {
	memory, log := make([]byte, MemorySize), make([]byte, LogSize)
	post := build(t, message.Con, message.POST, 100, "ab")
	non := build(t, message.Non, message.POST, 200, "cd")
	one := nextProcess(memory, log, 0)
	want := one.receive(t, post, 0)
	answered := one.receive(t, non, 0)
	two := nextProcess(memory, log, 0)
	if got := two.receive(t, post, time.Second); got != want || want != "ACK 2.04 mid=100 token=ab done" || two.executed != 0 {
		t.Errorf("%s, then %s, executed %d", want, got, two.executed)
	}
	if got := two.receive(t, non, time.Second); got != "nothing" || two.executed != 0 {
		t.Errorf("a repeated Non: %s", got)
	}
	if got := two.receive(t, build(t, message.Non, message.POST, 201, "ef"), time.Second); got == answered || two.session.mid != one.session.mid+1 {
		t.Errorf("%s, then %s", answered, got)
	}
	if got := two.receive(t, post, 5*time.Minute); got != want || two.executed != 2 {
		t.Errorf("after the lifetime: %s, executed %d", got, two.executed)
	}
}

// A request whose execution the end of the process has cut off is executed, once.
func TestARequestCutOffIsExecutedAgain(t *testing.T) {
	memory, log := make([]byte, MemorySize), make([]byte, LogSize)
	post := build(t, message.Con, message.POST, 100, "ab")
	one := nextProcess(memory, log, 0)
	copied := make([]byte, MemorySize)
	one.journal.serve = func(*message.Message, *Reply) { copy(copied, memory) } // what a kill here leaves
	one.receive(t, post, 0)
	two := nextProcess(copied, log, 0)
	first, second := two.receive(t, post, time.Second), two.receive(t, post, 2*time.Second)
	if first != "ACK 2.04 mid=100 token=ab done" || second != first || two.executed != 1 {
		t.Errorf("%s, %s, executed %d", first, second, two.executed)
	}
}

// What another log holds, or what has been overwritten there, is not taken for the answer.
func TestAnswersOfAnotherLogAreNotFound(t *testing.T) {
	memory, log := make([]byte, MemorySize), make([]byte, LogSize)
	post := build(t, message.Con, message.POST, 100, "ab")
	one := nextProcess(memory, log, 0)
	one.receive(t, post, 0)
	for name, p := range map[string]*process{
		"another number": nextProcess(append([]byte(nil), memory...), log, 1),
		"another log":    nextProcess(append([]byte(nil), memory...), make([]byte, LogSize), 0),
	} {
		if got := p.receive(t, post, time.Second); got != "nothing" || p.executed != 0 || p.Counters().Forgotten != 1 {
			t.Errorf("%s: %s, executed %d", name, got, p.executed)
		}
	}
}

// Nonsense in the memory neither ends the process nor executes anything twice in it.
func FuzzAdopt(f *testing.F) {
	f.Add(make([]byte, MemorySize), uint64(16))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff}, uint64(1)<<63)
	f.Fuzz(func(t *testing.T, text []byte, head uint64) {
		memory, log := make([]byte, MemorySize), make([]byte, logHead+4096)
		copy(memory, text)
		for i := range 8 {
			log[i] = byte(head >> (8 * i))
		}
		p := nextProcess(memory, log, 0)
		for mid := range uint16(40) {
			post := build(t, message.Con, message.POST, mid, "ab")
			p.receive(t, post, 0)
			before := p.executed
			p.receive(t, post, 0)
			if p.executed != before {
				t.Errorf("%d was executed again", mid)
			}
		}
	})
}
