// Package plot draws what weir measured: time series with marked events, grouped
// bars, and a report page that holds them.
//
// A report is one HTML file with its pictures inside as SVG: no script, no font and
// no address is fetched, so it can be mailed, archived and opened years later. Every
// mark carries its value as a title, which browsers show under the pointer, and the
// page follows the reader's light or dark setting.
//
// Pure: values go in, bytes come out; the same values give the same bytes.
//
//	chart := plot.Chart{
//		Title: "Requests", YLabel: "requests/s",
//		Series: []plot.Series{{Name: "rate", X: seconds, Y: rate}},
//		Events: []plot.Event{{X: 8, Label: "NAT cleared"}},
//	}
//	err := plot.Report{Title: "weir demo", OK: true, Verdict: "…", Figures: []plot.Figure{chart}}.WriteHTML(f)
package plot
