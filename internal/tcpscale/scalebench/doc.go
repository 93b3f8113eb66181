// Package scalebench holds N TCP connections between servers and clients of its own on this machine, for a while, and
// reports what that took: time to establish, memory of kernel and programs, idle processor time, and whether any was lost.
//
//	doctor ─► server group ─► client group ─► ramp ─► hold ─► Result: JSON, table, report with plots
package scalebench
