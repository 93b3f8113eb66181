package stats

import (
	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/metrics"
)

// Metrics is what /metrics serves besides package exposition.
type Metrics struct {
	*State    `metric:""`
	Reporters []reporterCount `metric:""`
	Live      []liveReporter  `metric:""`
}

// reporterCount is how many reporters of a role are in a state.
type reporterCount struct {
	Role  string `label:"role"`
	State string `label:"state"`
	Count int    `metric:"weir_tcp_reporters" help:"Servers and clients that report, are silent or have ended."`
}

// liveReporter is a reporter that is live.
type liveReporter struct {
	Role  string          `label:"role"`
	Shown *v1.TCPReporter `metric:""`
}

func (s *Service) metrics() []metrics.Sample {
	state := s.State(s.config.Now())
	return metrics.Of(metricsOf(&state))
}

func metricsOf(state *State) *Metrics {
	m := &Metrics{State: state}
	for _, end := range []struct {
		role string
		End
		rows []v1.TCPReporter
	}{{"server", state.Servers, state.ServerRows}, {"client", state.Clients, state.ClientRows}} {
		m.Reporters = append(m.Reporters,
			reporterCount{end.role, StateLive, end.Live},
			reporterCount{end.role, StateSilent, end.Silent},
			reporterCount{end.role, StateEnded, end.Ended})
		for i := range end.rows {
			if r := &end.rows[i]; r.State == StateLive {
				m.Live = append(m.Live, liveReporter{end.role, r})
			}
		}
	}
	return m
}
