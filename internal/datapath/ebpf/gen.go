package ebpf

//go:generate bpf/generate
