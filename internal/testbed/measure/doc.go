// Package measure holds what a run of a load or a benchmark found: a latency histogram and a result with one JSON form.
//
// [Latency] is a high dynamic range histogram: 64 ns resolution, 3 significant digits up to 10 minutes, about 200 KB,
// no allocation per value. A worker owns one; they are merged at the end. In JSON it carries the percentiles for people
// and its buckets for programs, so that results of several processes merge without loss:
//
//	{"count":3,"mean_ms":1.2,"p50_ms":1,"p99_ms":2, … ,"buckets":[[1000447,2],[2000895,1]]}
//
// [Result] is one run: what ran (scenario, path, parameters, machine), how much (requests, bytes, errors), how fast,
// and what each process spent on it. Durations are seconds in JSON keys that end in _s, milliseconds in _ms,
// microseconds in _us.
//
// The package is pure: no clock, no file. Process times come from package procstat.
package measure
