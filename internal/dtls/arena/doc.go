// Package arena keeps DTLS sessions as plain bytes in shared memory, so that they outlive the process that serves them.
//
//	header, 4096 bytes │ one block per worker, for its owner │ slot │ slot │ …
//
// The memory is a memfd, which a supervisor or systemd holds, or a file. Slots have a fixed size and hold no Go pointers. The memory is
// sealed against shrinking, and left out of core dumps. One process at a time may map it for writing.
//
// A process may be killed between any two instructions. Therefore each part of a slot is valid at all times:
//
//   - What does not change is written before the slot's generation, whose store makes the slot valid, and has a CRC-32C.
//   - A counter is one word of 64 bits, stored at once: 48 bits of value and 16 bits of check, which covers the generation.
//   - The replay window, and the path to the client, exist twice. The copy that is not in use is written, then one store of a
//     counter with its check makes it the one in use.
//
// The caller advances the send sequence before a record is sealed, and stores the replay window after a record was
// authenticated and before it is handled. Whatever instruction is the last one, sequence numbers are skipped, never used twice.
//
// Open reads each slot. One whose checks fail is dropped and counted: no counter is guessed, because a nonce that is used twice gives
// away the keys of AES-GCM. An arena of another size is converted slot by slot, after which the old one cannot be read any more (Retire); one of another version, of another boot of the
// machine, or with a damaged header is refused, and all of its sessions are lost.
//
// Times are since the arena was made, by CLOCK_MONOTONIC, so they go on in the next process, also where that clock is another one for it, as in
// another time namespace: see Seen.
//
// Bound: Config.Slots sessions. Nothing is evicted: Put returns nil when the arena is full. Linux only.
package arena
