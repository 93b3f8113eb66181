// Package v1 has the JSON of Weir as Go types: what the admin API answers and what commands print with --json.
//
// The status of `weir lb run` is an [LBStatus], of `weir nat` a [NATStatus], of `weir turn gateway` a [TurnStatus] and of
// `weir coap server` a [CoAPStatus]. Package client reads them from a running part.
//
// Measuring commands print results: [BenchResult] those of `weir bench run`, [TurnBench], [CoAPBench], [NATBench], [ProgramCost],
// [TCPReport], [TCPBench], [TCPComparison], [TCPStats], [SNATPlan], [SNATSimulation], [SNATLab], [Demo], [FragmentSimulation] those of
// the commands that they name, and a list of [Finding] what the doctors found. A type whose name ends in Of has the same JSON with another
// type of distributions; to read it, use the name without Of.
//
// # Stability
//
// Within v1 the name, type and meaning of a field stay; fields may be added. A reader therefore ignores keys that it does not
// know, and does not rely on the order of keys. Texts for people (a reason why, an error) may change.
//
// # Conventions
//
// Keys are in snake case. A time as a number names its unit in the key (_s seconds, _ms milliseconds, _ns nanoseconds); a moment is
// text as in RFC 3339. Bytes of packets are counted from the IP header on, unless a field says otherwise. Counters begin at 0 when the
// process starts, or when the tables were made, and never decrease while it runs. An address is text such as 192.0.2.1, one with a
// port 192.0.2.1:443 or [2001:db8::1]:443. A field that says "absent" is left out in that case; all others are always there.
//
// The package imports the standard library only.
package v1
