// Package control runs the loop that turns intent into a working data path:
//
//	file ──► config.Decode ──► lb.Compile(spec, overrides, caps) ──► Datapath.Apply ──► Status
//	                                     ▲
//	    operator, health probes, the data path itself: overrides
//
// It is the only caller of Datapath. A snapshot is applied completely or not at all. When anything fails, the last good one
// stays, and the error is shown in Status, in the log and in the metrics until a later change succeeds. Every applied
// snapshot has a generation, counted from 1.
//
// Overrides survive a reload, not a restart. They come from several goroutines; the loop applies one change at a time.
//
//	loop := control.New(datapath, control.Options{Log: log})
//	if err := loop.LoadFile(file); err != nil { … }     // the first configuration must be good
//	err := loop.Run(ctx, file)                          // reloads, probes
package control
