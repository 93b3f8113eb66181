package node

// Instead implements [config.Renaming] for the options of Californium's plugtest servers that are no keys here.
func (Config) Instead() map[string]string {
	const (
		state = "the directory of --state DIR on the command line holds the DTLS sessions"
		move  = "DTLS sessions stay on their host; there, weir coap upgrade and --state DIR keep them over a restart"
		tcp   = "list the addresses at listen_tcp and listen_tls, or leave these out"
	)
	instead := map[string]string{
		"tcp": tcp, "no_tcp": tcp,
		"dtls_only":             "leave out listen and listen_tcp",
		"no_oscore":             "write oscore_test: false, and no oscore",
		"dtls_cluster":          "write cluster: with nodes:",
		"dtls_cluster_group":    "write cluster: with group:",
		"dtls_cluster_mac":      "write cluster: with mac:",
		"dtls_cluster_backward": "write cluster: with backward:",
		"k8s_dtls_cluster":      "write --k8s-dtls-cluster on the command line",
		"k8s_monitor":           "write --metrics :PORT on the command line, which serves /readyz and /livez",
		"store_file":            state, "store_password64": state + "; its files are not encrypted, so it belongs on a tmpfs",
		"store_max_age": state + "; session_idle closes those that have been silent for so long",
		"k8s_restore":   move, "local_restore": move, "other_restore": move, "restore_max_age": move,
		"dtls_cluster_group_security": "write cluster: with security:",
	}
	for _, name := range []string{"benchmark", "diagnose", "echo_delay", "external", "ipv4", "ipv6", "loopback", "plugtest"} {
		instead["no_"+name] = "write " + name + ": false"
	}
	return instead
}
