// Package kernelnat forwards established flows of the user-space UDP NAT (udpnat) in the kernel: a program on the TCX ingress
// hook rewrites addresses and ports and sends the datagram on, without the NAT's process.
//
//	client ─► VIP ═ rewritten ═► outgoing address of the flow ─► backend
//	client ◄─ VIP ◄═ rewritten ═ outgoing address of the flow ◄─ backend
//
// User space decides: it enters a flow (Add) once a backend has answered it and steering has chosen that backend in the present
// epoch. Whatever may change decisions ends the epoch (Advance): every flow's next datagram then goes through user space, which
// renews its entry (Renew). The socket of a flow stays open all the time. It keeps the port and gets whatever the program passes:
// fragments, ICMP errors, datagrams that exceed the MTU.
//
// A route and an interface are looked up when a flow is entered. Its interfaces are attached then, if they are not yet. Changes of
// routes, addresses and links end the epoch and have all flows looked up again; those of policy routing rules alone do not.
//
// # Limits
//
// MaxFlows flows; one that does not fit stays in user space. Only flows that have the same address family on both sides, no
// link-local and multicast addresses, Ethernet interfaces and lo. What goes from one interface to another passes no netfilter
// rule. Little-endian 64-bit machines; Linux 6.6 or newer. The programs end with the process, however it ends.
//
//	t, err := kernelnat.Open(kernelnat.Config{MaxFlows: 10000})
//	id, err := t.Add(kernelnat.Flow{Client: client, VIP: vip, Local: outgoing, Backend: backend, Epoch: t.Epoch()})
package kernelnat
