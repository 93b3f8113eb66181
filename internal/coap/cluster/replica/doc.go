// Package replica keeps the sessions of a process at a second node, its buddy, which takes them over when the process is gone: a pure
// state machine. Messages of other nodes, what the agreement engine says, the time, and sessions as opaque bytes go in; messages,
// changes for the engine, limits, and sessions to restore come out.
//
//	owner                                   buddy                          engine: one entry for each process
//	Change: create, buddy B  ────────────────────────────────────────────► {owner, term 5, buddy B}
//	Batch 1: sessions, limits ────────────► copies
//	         ◄───────────────────────────── Ack 1
//	seals below the limits
//	dies                                    Hold after the newest Batch:
//	                                        Change: term 5, take over  ──► {owner, term 9, taken by B}
//	                                        restores each copy, which begins at its limit
//
// A sequence number must be sealed by one process only. Three rules hold that, and none of them needs a clock:
//
//   - The owner seals below the limit of a session only, and every copy that may still be restored has that limit or a higher one: a
//     limit rises when the buddy has acknowledged it. The successor begins at the limit of its copy.
//   - The engine holds which process may restore whose copies. It changes an entry only if its term is the expected one, so of two
//     changes one succeeds: the owner's that replaces its buddy, or the buddy's that takes over. Copies of another term are dropped.
//   - The buddy acknowledges nothing more of a process that it has taken over. It takes batches in the order of their serial numbers and
//     drops those that come late; the owner repeats contents as they are then, never an old batch.
//
// Clocks decide only who serves at a time. An acknowledged batch entitles the owner to seal until [Hold] less [margin] after it has sent
// that batch, and the buddy takes over no earlier than [Hold] after it has received one. With clocks of about the same rate, and while no process is
// stopped between the look at the clock and the seal, one of them at most serves a session. The engine takes no part in that: while it cannot be reached,
// owners go on, and only buddies cannot be replaced and nothing is taken over.
//
// Every doubt ends in a session that is dropped: a process that was taken over drops all of its sessions (Fenced); a copy that was not
// acknowledged, or is of another term, is not restored; a session leaves for another node (Remove) when no copy of it can be restored.
//
// A process that finds the sessions of the one before it in memory goes on as that one (Resume, Inherit), or drops them if its buddy was earlier.
//
// Messages travel over the secured link only, behind the byte [Type] (message.go). There is no message per record: a batch for each
// half of a lease of a session, and for each change of its bytes that the caller reports.
//
// Limits: Config.Sessions own sessions, Config.Copies copies of other nodes' sessions, [maxStreams] owners of them, [window] sessions sent without Ack,
// [MaxStatic] and [MaxChanging] bytes of a session.
package replica
