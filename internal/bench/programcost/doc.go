// Package programcost measures what the programs of the kernel data path cost a packet (`weir bench ebpf`), by
// BPF_PROG_TEST_RUN in a network namespace of its own. It needs root.
//
// A generator program writes every packet and gives it to the program under test. The generator alone is measured in the same
// rounds, and so are two comparators, with the same packets: a look-up in an LRU hash table, and one in the kernel's routes. The
// 20th percentile of the rounds counts, for what else runs on the machine only adds.
package programcost
