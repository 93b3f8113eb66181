package bench

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/plot"
)

// Figures of a [KubeSessions] result.
const (
	figureKubeUDPLost   = "UDP flows lost"
	figureKubeTCPLost   = "TCP flows lost"
	figureKubeDTLSLost  = "DTLS requests lost"
	figureKubeHandshake = "DTLS sessions lost"
	figureKubeCallsLost = "TURN datagrams lost"
	figureKubeIdle      = "TURN allocations that carried nothing"
	figureKubeAnswered  = "answered"
	figureKubeRepeatedD = "repeated"
	figureKubeTook      = "the event took"
	figureKubeMoved     = "DTLS clients moved"
)

// judge fills the result of an event.
func (k *kubeSessions) judge(r *measure.Result, before, after kubeCount, took time.Duration, happened, served error) {
	d, e := before.dtls, after.dtls
	sessions := e.LostSessions + e.Rehandshakes + e.HandshakeErrors - d.LostSessions - d.Rehandshakes - d.HandshakeErrors
	r.Figures = []measure.Figure{
		{Name: figureKubeTook, Value: took.Seconds(), Unit: "s"},
		{Name: figureKubeAnswered, Value: float64(after.udp.Answered + after.tcp.Answered + e.Requests + after.calls.sent - before.udp.Answered - before.tcp.Answered - d.Requests - before.calls.sent)},
		{Name: figureKubeRepeatedD, Value: float64(after.udp.Repeated + e.Retransmissions - before.udp.Repeated - d.Retransmissions)},
		{Name: figureKubeMoved, Value: float64(e.Rebinds - d.Rebinds)},
		{Name: figureKubeUDPLost, Value: float64(after.udp.Lost - before.udp.Lost)},
		{Name: figureKubeTCPLost, Value: float64(after.tcp.Lost - before.tcp.Lost)},
		{Name: figureKubeDTLSLost, Value: float64(e.Lost + e.Failed - d.Lost - d.Failed)},
		{Name: figureKubeHandshake, Value: float64(sessions)},
		{Name: figureKubeCallsLost, Value: float64(after.calls.lost + after.calls.refused - before.calls.lost - before.calls.refused)},
		{Name: figureKubeIdle, Value: float64(after.idle - before.idle)},
	}
	r.Requests = uint64(figureOf(r, figureKubeAnswered))
	var missed []string
	for _, name := range kubeLosses() {
		if v := figureOf(r, name); v > 0 {
			r.Errors += uint64(v)
			missed = append(missed, fmt.Sprintf("%.0f %s", v, name))
		}
	}
	for _, why := range []string{after.udp.Why, after.tcp.Why} {
		if why != "" && len(missed) > 0 {
			missed = append(missed, why)
		}
	}
	if happened != nil {
		missed = append(missed, "the event failed: "+happened.Error())
	}
	if served != nil {
		missed = append(missed, "new flows: "+served.Error())
	}
	r.Parameters[paramVerdict], r.Parameters[paramMissed] = verdictOK, strings.Join(missed, "; ")
	if len(missed) > 0 {
		r.Parameters[paramVerdict] = verdictLost
	}
}

// kubeLosses are the figures that have to be 0.
func kubeLosses() []string {
	return []string{figureKubeUDPLost, figureKubeTCPLost, figureKubeDTLSLost, figureKubeHandshake, figureKubeCallsLost, figureKubeIdle}
}

func kubeSessionsTables(results []*measure.Result) []plot.Table {
	return []plot.Table{tableOf("Sessions while parts of a cluster are replaced", results, stateOf,
		pathColumn("event"), formatted("took s", "%.1f", figureKubeTook), counted("answered", figureKubeAnswered), counted("repeated", figureKubeRepeatedD), counted("DTLS clients moved", figureKubeMoved), counted("UDP flows lost", figureKubeUDPLost),
		counted("TCP flows lost", figureKubeTCPLost), counted("DTLS requests lost", figureKubeDTLSLost), counted("DTLS sessions lost", figureKubeHandshake),
		counted("TURN datagrams lost", figureKubeCallsLost), column{"verdict", func(r *measure.Result) string { return verdictOf(r) }})}
}

// kubeSessionsPictures are the losses of each event, and the datagrams that were repeated.
func kubeSessionsPictures(results []*measure.Result) []plot.Figure {
	names := append(kubeLosses(), figureKubeRepeatedD)
	bars := plot.Bars{Title: "kube-sessions: lost and repeated in each event", Names: names}
	for _, r := range results {
		var values []float64
		for _, name := range names {
			values = append(values, figureOf(r, name))
		}
		bars.Groups = append(bars.Groups, plot.Group{Name: r.Path, Values: values})
	}
	return []plot.Figure{bars}
}

func kubeSessionsMethod(results []*measure.Result) string {
	r, m := results[0], results[0].Machine
	text := fmt.Sprintf(`A real API server and its controllers; Pods are processes in network namespaces; the operator and a load balancer in the kernel run on their machine. %s flows through one Gateway: a quarter
UDP, a quarter TCP, each with a request every %v that must be answered by the Pod that answered first, half DTLS with connection ids, whose clients change their ports every 5 s and are steered by connection id; and %s TURN allocations, evenly at three TURN gateways, over each of which a
datagram goes every half second. A datagram of a flow is repeated after %v, %d times; after that the flow is lost. After each event new flows have to be served. The API server is gone for %s. All share the machine:
%s, %d cores, Linux %s. Started %s.`,
		r.Parameters["flows"], flowInterval, r.Parameters["allocations"], flowTry, flowTries-1, r.Parameters["gone"], m.CPU, m.Cores, m.Kernel, r.Started.UTC().Format(time.DateTime))
	for _, r := range results {
		text += fmt.Sprintf("\n  %-16s %s", r.Path, r.Parameters[paramAbout])
	}
	return text
}

func kubeSessionsVerdict(results []*measure.Result) string {
	lost := uint64(0)
	for _, r := range results {
		lost += r.Errors
	}
	return fmt.Sprintf("%d events, %d lost, aims missed by %d events", len(results), lost, missedBy(results))
}
