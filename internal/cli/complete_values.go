package cli

// flagValues are the values that a shell offers of flags that several families have.
func flagValues() map[string][]string {
	return map[string][]string{
		"--log":      {"text", "json"},
		"--datapath": {"ebpf", "nfqueue", "udp"},
		"--hook":     {"auto", "xdp", "tcx"},
		"--protocol": {"tcp", "udp"},
		"--workers":  {},
	}
}
