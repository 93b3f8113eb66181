// Package generator is a program in the kernel that writes packets of many flows and gives each to another program, by
// BPF_PROG_TEST_RUN: for measurements, and for tests that need the speed of the programs.
//
//	objects, err := generator.Load()
//	g := generator.Generator{Objects: objects, Index: 1, Family: 4, Hook: attach.HookXDP, Flows: 1 << 16}
//	template, err := g.Template(generator.Packet{ToVIP: true})
//	ns, err := g.Time(program, template, 1<<18)
package generator
