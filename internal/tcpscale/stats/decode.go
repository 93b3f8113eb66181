package stats

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weir-lb/weir/internal/tcpscale"
)

const (
	maxBody     = 1 << 20 // 4096 peers and four histograms take half
	maxPeers    = 4096
	maxKinds    = 64
	maxName     = 256
	maxText     = 1024
	maxLimits   = 64
	mostAtOnce  = 1 << 30 // connections that a report may claim
	maxCounters = 1 << 62
)

// decodeReport reads one report and refuses what no server or client says.
func decodeReport(body []byte) (*tcpscale.Report, error) {
	report := new(tcpscale.Report)
	if err := json.Unmarshal(body, report); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return report, check(report)
}

func check(r *tcpscale.Report) error {
	if r.Role != tcpscale.RoleServer && r.Role != tcpscale.RoleClient {
		return fmt.Errorf("role %.40q: want %s or %s", r.Role, tcpscale.RoleServer, tcpscale.RoleClient)
	}
	if r.ID == "" {
		return fmt.Errorf("id is missing")
	}
	for key, text := range map[string]string{"id": r.ID, "host": r.Host, "zone": r.Zone, "run": r.Run, "void": r.Void} {
		if err := checkText(key, text, maxName); err != nil {
			return err
		}
	}
	c := r.Connections
	for key, n := range map[string]int{
		"target": c.Target, "established": c.Established, "connecting": c.Connecting, "unanswered": c.Unanswered,
		"waiting": c.Waiting, "draining": c.Draining, "pid": r.PID, "worker": r.Worker, "workers": r.Workers, "other_peers": r.OtherPeers,
	} {
		if n < 0 || n > mostAtOnce {
			return fmt.Errorf("%s is %d: want 0 to %d", key, n, mostAtOnce)
		}
	}
	t, h := r.Totals, r.Heartbeats
	for _, n := range []uint64{t.Opened, t.Closed, t.Lost, t.Reconnected, t.Evicted, t.Refused, t.Failed, h.Sent, h.Received, h.Missed} {
		if n > maxCounters {
			return fmt.Errorf("a counter of %d: want at most 2^62", n)
		}
	}
	if r.CPUSeconds < 0 || r.CPUSeconds > 1e12 {
		return fmt.Errorf("cpu_s is %g", r.CPUSeconds)
	}
	return checkLists(r)
}

func checkLists(r *tcpscale.Report) error {
	if len(r.Peers) > maxPeers || len(r.Failures) > maxKinds || len(r.LimitsHit) > maxLimits {
		return fmt.Errorf("%d peers, %d kinds of failures, %d limits: want at most %d, %d, %d",
			len(r.Peers), len(r.Failures), len(r.LimitsHit), maxPeers, maxKinds, maxLimits)
	}
	for i, p := range r.Peers {
		if p.Connections < 0 || p.Connections > mostAtOnce {
			return fmt.Errorf("peers[%d]: %d connections", i, p.Connections)
		}
		for _, text := range []string{p.ID, p.Zone, p.Generation} {
			if err := checkText(fmt.Sprintf("peers[%d]", i), text, maxName); err != nil {
				return err
			}
		}
	}
	for kind, n := range r.Failures {
		if kind == "" || n > maxCounters || strings.Trim(kind, "abcdefghijklmnopqrstuvwxyz_") != "" || len(kind) > 40 {
			return fmt.Errorf("failures: %.40q: %d", kind, n)
		}
	}
	for _, limit := range r.LimitsHit {
		if err := checkText("limits_hit", limit, maxText); err != nil {
			return err
		}
	}
	if p := r.Plateau; p != nil {
		if p.Connections < 0 || p.Connections > mostAtOnce {
			return fmt.Errorf("plateau: %d connections", p.Connections)
		}
		for _, text := range []string{p.Ceiling, p.Because, p.Remedy, p.Kind, p.Text} {
			if err := checkText("plateau", text, maxText); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkText(key, text string, maximum int) error {
	if len(text) > maximum {
		return fmt.Errorf("%s has %d bytes: want at most %d", key, len(text), maximum)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return fmt.Errorf("%s %.40q: want text without control characters", key, text)
	}
	return nil
}

// decodeOriginal reads a record of the original tester's server: {"MachineName", "Clients", "LastUpdated"}, in any case.
func decodeOriginal(body []byte, now time.Time) (*tcpscale.Report, error) {
	var record struct {
		MachineName string
		Clients     *int
	}
	if err := json.Unmarshal(body, &record); err != nil {
		return nil, fmt.Errorf("statistics: %w", err)
	}
	if record.Clients == nil {
		return nil, fmt.Errorf("statistics: Clients is missing")
	}
	report := &tcpscale.Report{Role: tcpscale.RoleServer, ID: record.MachineName, Host: record.MachineName, At: now}
	report.Connections.Established = *record.Clients
	return report, check(report)
}
