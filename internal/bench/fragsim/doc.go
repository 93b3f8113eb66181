// Package fragsim fills a fragment table in virtual time: hours of traffic in
// seconds, the same numbers for the same seed.
//
// What is asked: how many datagrams a table of a given size refuses when
// fragmented datagrams arrive at a rate and each is remembered for a ttl. Two
// tables answer:
//
//   - [Weir]: [flow.Fragments], the very table that the data paths use, with
//     size + buckets entries;
//   - [NFQLB]: the table of nfqlb, rebuilt from its description: size chains,
//     found by the djb2 hash of the key, whose entries beyond the first come
//     from a pool of buckets; an entry whose time is over stays until its own
//     chain is touched.
//
// The traffic is that of nfqlb's own simulator, so that figures compare: every
// arrival is a new datagram, its id the previous one plus one from a random
// start, between all addresses zero; the time between two is uniform from 0 to
// twice the mean. Nothing is removed and nothing looked up.
//
//	results, err := fragsim.Run(ctx, fragsim.Config{
//		Table: fragsim.NFQLB, Size: 223, Buckets: 223, TTL: 200 * time.Millisecond,
//		Rate: 1000, Duration: 5 * time.Minute, Repeat: 16, Parallel: 8, Seed: 1,
//	}, nil)
//
// Limits: a run has at most [MaxInserts] arrivals, a table [MaxEntries] entries.
package fragsim
