package stats

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// serveMetrics writes the Prometheus text format, version 0.0.4.
func (s *Service) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	st := s.State(s.config.Now())
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(metrics(&st))
}

func metrics(st *State) []byte {
	var out bytes.Buffer
	one := func(name, kind, help string, value float64, labels ...string) {
		head(&out, name, kind, help)
		sample(&out, name, value, labels...)
	}
	one("weir_tcp_connected", "gauge", "Connections established, as live clients tell, or the servers where no client reports.", float64(st.Connected))
	if st.Expected > 0 {
		one("weir_tcp_expected", "gauge", "Connections that should be there.", float64(st.Expected))
	}
	if st.Difference != nil {
		one("weir_tcp_ends_difference", "gauge", "Connections that clients count and servers do not.", float64(*st.Difference))
	}
	one("weir_tcp_stats_reports_total", "counter", "Reports taken.", float64(st.Reports))
	perState(&out, st)
	perReporter(&out, st)
	const failures = "weir_tcp_failures"
	head(&out, failures, "gauge", "Failures by kind, of all clients that are known now.")
	for _, f := range st.Failures {
		sample(&out, failures, float64(f.Count), "kind", f.Kind)
	}
	const dropped = "weir_tcp_stats_dropped_total"
	head(&out, dropped, "counter", "What the service refused or gave up.")
	d := st.Dropped
	for _, row := range []struct {
		what string
		n    uint64
	}{
		{"reporters", d.Reporters},
		{"forgotten", d.Forgotten},
		{"bad_reports", d.BadReports},
		{"too_large", d.TooLarge},
		{"strangers", d.Strangers},
		{"busy", d.Busy},
		{"watchers", d.Watchers},
		{"slow_watchers", d.Slow},
	} {
		sample(&out, dropped, float64(row.n), "what", row.what)
	}
	return out.Bytes()
}

func perState(out *bytes.Buffer, st *State) {
	const name = "weir_tcp_reporters"
	head(out, name, "gauge", "Servers and clients that report, are silent or have ended.")
	for _, end := range []struct {
		role string
		End
	}{{"server", st.Servers}, {"client", st.Clients}} {
		sample(out, name, float64(end.Live), "role", end.role, "state", StateLive)
		sample(out, name, float64(end.Silent), "role", end.role, "state", StateSilent)
		sample(out, name, float64(end.Ended), "role", end.role, "state", StateEnded)
	}
}

// perReporter writes a sample for each reporter that is live.
func perReporter(out *bytes.Buffer, st *State) {
	for _, m := range []struct {
		name, kind, help string
		value            func(*Row) float64
	}{
		{"weir_tcp_connections", "gauge", "Connections established.", func(r *Row) float64 { return float64(r.Connections.Established) }},
		{"weir_tcp_target", "gauge", "Connections that a client shall hold.", func(r *Row) float64 { return float64(r.Connections.Target) }},
		{"weir_tcp_connecting", "gauge", "Connections under way.", func(r *Row) float64 { return float64(r.Connections.Connecting) }},
		{"weir_tcp_opened_total", "counter", "Connections that became established.", func(r *Row) float64 { return float64(r.Totals.Opened) }},
		{"weir_tcp_closed_total", "counter", "Connections closed on purpose.", func(r *Row) float64 { return float64(r.Totals.Closed) }},
		{"weir_tcp_lost_total", "counter", "Established connections that broke or fell silent.", func(r *Row) float64 { return float64(r.Totals.Lost) }},
		{"weir_tcp_reconnected_total", "counter", "Connections that came back after a loss.", func(r *Row) float64 { return float64(r.Totals.Reconnected) }},
		{"weir_tcp_evicted_total", "counter", "Connections that a server gave up as silent.", func(r *Row) float64 { return float64(r.Totals.Evicted) }},
		{"weir_tcp_failed_total", "counter", "Attempts that led to no connection.", func(r *Row) float64 { return float64(r.Totals.Failed) }},
		{"weir_tcp_heartbeats_missed_total", "counter", "Heartbeats without an echo in time.", func(r *Row) float64 { return float64(r.Missed) }},
		{"weir_tcp_not_scheduled_seconds_total", "counter", "How long the reporter's processes were not scheduled: beyond a second its times are void.", func(r *Row) float64 { return r.Frozen }},
		{"weir_tcp_rtt_p99_seconds", "gauge", "99th percentile of the heartbeats' round trip.", func(r *Row) float64 { return r.RTT99 / 1000 }},
	} {
		head(out, m.name, m.kind, m.help)
		for _, rows := range [][]Row{st.ServerRows, st.ClientRows} {
			for i := range rows {
				if r := &rows[i]; r.State == StateLive {
					sample(out, m.name, m.value(r), "role", r.report.Role, "id", r.ID, "host", r.Host, "key", r.Key)
				}
			}
		}
	}
}

func head(out *bytes.Buffer, name, kind, help string) {
	fmt.Fprintf(out, "# HELP %s %s\n# TYPE %[1]s %[3]s\n", name, help, kind)
}

// sample writes one line; labels are names and values in turn.
func sample(out *bytes.Buffer, name string, value float64, labels ...string) {
	out.WriteString(name)
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	for i := 0; i < len(labels); i += 2 {
		out.WriteByte("{,"[min(i, 1)])
		fmt.Fprintf(out, `%s="%s"`, labels[i], quote.Replace(labels[i+1]))
	}
	if len(labels) > 0 {
		out.WriteByte('}')
	}
	out.WriteByte(' ')
	out.WriteString(strconv.FormatFloat(value, 'g', -1, 64))
	out.WriteByte('\n')
}
