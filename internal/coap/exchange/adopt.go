package exchange

import (
	"unsafe"
)

// What a session needs in the next process: see Endpoint.Adopt and Config.Log.
const (
	MemorySize    = int(unsafe.Sizeof(ring{})) // bytes, aligned to 8
	MemoryVersion = 1                          // of their layout; the next one has other bytes
	LogSize       = logHead + 16<<20           // bytes of Config.Log
)

const (
	logHead   = 64 // bytes in front of the answers: how many were ever written
	maxMemory = memoryBegun
)

// answerLogIn returns the log in memory, with the answers that are in it.
func answerLogIn(memory []byte) answerLog {
	l := answerLog{buf: memory[logHead : len(memory)/logUnit*logUnit], head: (*uint64)(unsafe.Pointer(&memory[0]))}
	if *l.head%logUnit != 0 {
		*l.head = 0
	}
	return l
}

// Adopt has a session that is new to this process use memory, of MemorySize bytes, for what its peer may repeat: message ids and where
// their answers are. memory outlives the process and is zero for a session that is new. It is to be called before the first message.
//
// After a restart a repeated request gets the answer that it has had, and is not executed again, unless the process ended while it was
// executed: then it is executed, since what it has done so far has ended with the process. That is at most one request of each
// Endpoint. The answers of a session that comes from another log are not found again: repeated unsafe requests are then dropped.
func (e *Endpoint) Adopt(s *Session, memory []byte) {
	r := (*ring)(unsafe.Pointer(&memory[:MemorySize][0]))
	s.ring, s.started, s.mid = r, r.started, r.mid
	if r.next >= Ring {
		r.next = 0
	}
	for i := range r.how {
		switch how := r.how[i]; {
		case how == memoryBegun:
			r.how[i] = memoryRepeat
		case how > maxMemory, how == memoryStored && r.log != uint16(e.cfg.LogNumber):
			r.how[i] = memorySilent
		}
	}
	r.log = uint16(e.cfg.LogNumber)
}

// stored returns the answer to a request; nil: it was overwritten. An answer that is another message's is none: the log is that of a
// process that may have crashed.
func (e *Endpoint) stored(s *Session, slot int) []byte {
	answer := e.log.get(s.ring.pos[slot], s.ring.size[slot])
	if len(answer) < 4 || uint16(answer[2])<<8|uint16(answer[3]) != s.ring.ids[slot] {
		return nil
	}
	return answer
}
