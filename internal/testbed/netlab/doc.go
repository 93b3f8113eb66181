// Package netlab builds networks of Linux network namespaces from a value.
//
// A [Topology] says what shall exist: namespaces, veth links between them, bridges, macvlans, addresses, routes,
// rules, neighbours, sysctls. [Up] makes it, [Lab.Down] removes it, and nothing outside the namespaces is touched.
//
//	Topology ─ Validate ─ Up ─► Lab ── Namespace("zone0") ── Do(func)     run Go code there
//	                             │                        ├─ Start(cmd)   start a program there
//	                            Down                      └─ Exec(…)      run one and read its output
//
// Names. A namespace of a lab owned by this process is bind-mounted as /run/netns/weirlab-NAME.PID.N.NAMESPACE, so
// `ip netns exec` reaches it and two runs never collide. [Up] first sweeps what a dead process left (its PID is in the
// name). A kept lab ([Keep], for people: `weir lab up`) is named weirlab-NAME.NAMESPACE, outlives the process and is
// found by [Open] and removed by [Remove].
//
// Links have the kernel's default offloads: a lab must show what a user's machine does, so netlab never changes them.
// Duplicate address detection is off (addresses work when Up returns), every link is up and has carrier.
//
// Limits: Linux, CAP_SYS_ADMIN and CAP_NET_ADMIN; no tunnel, dummy or VLAN devices.
//
//	lab, err := netlab.Up(netlab.Topology{
//		Name:       "pair",
//		Namespaces: []netlab.Namespace{{Name: "a"}, {Name: "b"}},
//		Links: []netlab.Link{{
//			A: netlab.End{Namespace: "a", Name: "eth0", Addresses: netlab.Prefixes("10.1.0.1/24", "fd01::1/64")},
//			B: netlab.End{Namespace: "b", Name: "eth0", Addresses: netlab.Prefixes("10.1.0.2/24", "fd01::2/64")},
//		}},
//	})
package netlab
