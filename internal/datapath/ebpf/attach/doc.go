// Package attach puts programs on interfaces and takes them off again. It knows no tables and no data path.
//
//	Plan ─► []Interface: which hook, and why ─► Attach, or TakeOver of a pinned link ─► Detach
//	                                        └► WakePeers: the other ends of veth pairs take redirected frames
//
// XDP is for packet rate on network cards. TCX is for veth, bridges and whatever else hands over large segments, which XDP
// would have cut up. HookAuto chooses for each interface and says why. An XDP program of somebody else is never replaced.
//
// Functions work in the network namespace of the calling thread; InNamespace and InNamespaceOf run a function in another one,
// which needs CAP_SYS_ADMIN.
//
//	plan, err := attach.Plan([]string{"eth0"}, attach.HookAuto, nil)
//	link, err := plan[0].Attach(program, false)
package attach
