package ebpf

// wakePeers is written next.
func wakePeers([]attachment) []string { return nil }
