package bench

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
	"github.com/weir-lb/weir/internal/testbed/procstat"
	"github.com/weir-lb/weir/internal/testbed/programs"
)

// FloodsConfig says what to flood, and for how long.
type FloodsConfig struct {
	Run
	Duration time.Duration // of each flood
	Only     []string      // words in the name of a flood or of a target; none: all
	With     []string      // peers; nil: those that are installed
	Quick    bool          // a tenth of the tables and of most rates, and no long sleep of the sessions before a flood
}

// Validate says what cannot be meant.
func (c *FloodsConfig) Validate() error {
	if c.Duration < time.Second || c.Duration > 10*time.Minute {
		return fmt.Errorf("--duration %v: give 1s to 10m for each flood", c.Duration)
	}
	for _, name := range c.With {
		if !slices.Contains(FloodPeers(), name) {
			return fmt.Errorf("--with %q: there are %s", name, strings.Join(FloodPeers(), ", "))
		}
	}
	if len(c.cells()) == 0 {
		return fmt.Errorf("--only %s: no flood and no target has that in its name; there are the floods %s, and the targets %s",
			strings.Join(c.Only, ","), strings.Join(floodNames(), ", "), strings.Join(targetNames(), ", "))
	}
	return nil
}

// Floods that are not an [Attack].
const (
	floodIdentity = "one-identity"
	floodIdle     = "idle-connections"
	// floodReordered is attackLater, while clients send datagrams whose later fragments come first.
	floodReordered = "reordered"
)

// floodKind is one kind of flood.
type floodKind struct {
	name, about string
	groups      []string
	rate        float64 // a second
	small       bool    // --quick floods at this rate, too: a lower one would not fill the table
	addresses   int     // of the sources; 0: all
	streams     bool    // only for what carries TCP
	fragments   bool    // only for what sees fragments
}

// attack is the kind of its frames.
func (k *floodKind) attack() string {
	if k.name == floodReordered {
		return attackLater
	}
	return k.name
}

// floodKinds are in the order of their rows. Rates are ten times those of the review that found the weaknesses.
func floodKinds() []floodKind {
	return []floodKind{
		{name: attackHalfOpen, about: "DTLS handshakes from 4 addresses that return the cookie, then fall silent: 3,000/s", groups: []string{groupDTLS, groupCertificates}, rate: 3000, small: true, addresses: 4},
		{name: attackHello, about: "ClientHellos from spoofed addresses, whose cookie does not come back: 20,000/s", groups: []string{groupDTLS, groupCertificates}, rate: 20000},
		{name: floodIdentity, about: "10,880 DTLS handshakes of one identity against sleeping sessions, 1,000 of which have room", groups: []string{groupDTLS}, rate: 10880},
		{name: attackForged, about: "forged records with an observed connection id from spoofed addresses: 160,000/s in 5,000 datagrams", groups: []string{groupDTLS}, rate: 5000, small: true},
		{name: attackUDPFlows, about: "one datagram of each of 4,000 new spoofed flows a second", groups: []string{groupBalancer, groupSteered}, rate: 4000},
		{name: attackSYN, about: "SYNs of spoofed flows, as many as the generator can send, at most 80,000/s", groups: []string{groupBalancer}, rate: 80000, streams: true},
		{name: attackFirst, about: "first fragments whose others never come: 200,000/s requested", groups: []string{groupBalancer}, rate: 200000, fragments: true},
		{name: attackLater, about: "later fragments whose first ones never come: 50,000/s", groups: []string{groupBalancer}, rate: 50000, fragments: true},
		{name: floodReordered, about: "the same at 1,000/s, while the datagrams of the clients have their later fragment first", groups: []string{groupBalancer}, rate: 1000, small: true, fragments: true},
		{name: attackAllocate, about: "unauthenticated TURN Allocate requests from spoofed addresses: 20,000/s", groups: []string{groupTURN}, rate: 20000},
		{name: attackSetUp, about: "authenticated TURN allocations of one address: 3,200/s for at most 4 s, aim 3,000/s", groups: []string{groupTURN}, rate: 3200, addresses: 1},
		{name: floodIdle, about: "1,400 idle connections on the port of the probes", groups: []string{groupAdmin}, rate: 1400, small: true},
	}
}

func floodNames() (names []string) {
	for _, f := range floodKinds() {
		names = append(names, f.name)
	}
	return names
}

func targetNames() (names []string) {
	for _, t := range floodTargets() {
		names = append(names, t.name)
	}
	return names
}

// FloodPeers names what can be flooded in comparison with Weir.
func FloodPeers() (names []string) {
	for _, t := range floodTargets() {
		if t.peer {
			names = append(names, t.name)
		}
	}
	return names
}

// DescribeFloods lists the floods, each followed by a tab and what it is.
func DescribeFloods() (lines []string) {
	for _, f := range floodKinds() {
		lines = append(lines, f.name+"\t"+f.about)
	}
	return lines
}

// DescribeFloodTargets lists the targets, each followed by a tab and what it is.
func DescribeFloodTargets() (lines []string) {
	for _, t := range floodTargets() {
		lines = append(lines, t.name+"\t"+t.about)
	}
	return lines
}

// floodCell is a flood against a target.
type floodCell struct {
	flood  floodKind
	target floodTarget
}

// cells are what to run.
func (c *FloodsConfig) cells() (cells []floodCell) {
	for _, f := range floodKinds() {
		for _, t := range floodTargets() {
			wanted := len(c.Only) == 0 || slices.ContainsFunc(c.Only, func(word string) bool { return floodWord(word, f.name, t.name) })
			switch {
			case !wanted, !slices.Contains(f.groups, t.group), f.streams && !t.streams, f.fragments && !t.fragments:
			case t.peer && c.With != nil && !slices.Contains(c.With, t.name):
			default:
				cells = append(cells, floodCell{f, t})
			}
		}
	}
	return cells
}

// floodWord says whether FLOOD, TARGET or FLOOD/TARGET names a cell.
func floodWord(word, flood, target string) bool {
	first, second, both := strings.Cut(word, "/")
	if both {
		return first == flood && second == target
	}
	return word == flood || word == target
}

// floodRun is one flood against one target in a network of its own.
type floodRun struct {
	floodCell
	*programs.Stage
	config  FloodsConfig
	pids    []int // of what is measured
	output  programs.LastLines
	entry   netip.AddrPort // what is flooded
	notes   []string
	clients floodClients
	answers *responder
	flows   int // places of a balancer's flow table; 0: as few as a flood fills
}

// floodClients are what the real clients came to.
type floodClients struct {
	newOK, newAll     uint64 // new handshakes, flows, allocations or probes
	movesDue          uint64
	moved, movedLost  uint64 // changes of an address, and what was lost by them: requests, sessions
	asleep, kept      uint64 // sessions that slept
	established, lost uint64 // flows or allocations that were there before
	sent, repeated    uint64 // requests of those, and how many datagrams had to be sent again
	wholeLost         uint64 // of these, those that were not just answered late, where a queue for fragments keeps them
	fragmented        uint64 // datagrams in two fragments
	fragmentsLost     uint64
	returned          uint64 // cookies that the flood returned
	signatures        uint64 // that the flood cost
	why               []string
}

func (r *floodRun) note(text string) { r.notes = append(r.notes, text) }

// Names of the figures of a [Floods] result.
const (
	figureAsked          = "offered"
	figureReached        = "reached"
	figureNew            = "new clients"
	figureNewOK          = "new clients ok"
	figureMovesDue       = "moves due"
	figureMovedLost      = "moved lost"
	figureAsleep         = "sleepers"
	figureKept           = "sleepers kept"
	figureEstablished    = "established"
	figureLost           = "established lost"
	figureSent           = "requests"
	figureRepeated       = "repeated"
	figureWholeLost      = "whole lost"
	figureFragmented     = "fragmented"
	figureFragmentsLost  = "fragmented lost"
	figureReturned       = "cookies returned"
	figureSignatures     = "signatures"
	figureResidentBefore = "resident before"
	figureResidentMax    = "resident max"
	figureResidentAfter  = "resident after"
	figureFloodCPU       = "processor time"
)

// Floods runs every flood against every target that stands it. It needs root. When ctx ends it returns what was measured so far.
func Floods(ctx context.Context, config FloodsConfig) (results []*measure.Result, err error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if err := privileged(); err != nil {
		return nil, err
	}
	cells := config.cells()
	for i, cell := range cells {
		config.progress(float64(i)/float64(len(cells)), "%s against %s", cell.flood.name, cell.target.name)
		result := &measure.Result{
			Scenario: scenarioFloods, Path: cell.target.name, Machine: machine(), Started: time.Now(),
			Parameters: map[string]string{paramLoad: cell.flood.name, paramFamily: "ipv4", paramAbout: cell.target.about},
		}
		if cell.target.peer {
			result.Parameters[paramPeer] = "yes"
		}
		results = append(results, result)
		if why := cell.target.absent(); why != nil {
			if slices.Contains(config.With, cell.target.name) {
				return results, fmt.Errorf("--with %s: %w", cell.target.name, why)
			}
			result.Parameters[paramVerdict] = "skipped: " + why.Error()
			continue
		}
		if err := runFloodCell(ctx, config, cell, result); err != nil {
			if ctx.Err() != nil {
				return results[:len(results)-1], nil
			}
			result.Parameters[paramFailed] = err.Error()
		}
	}
	return results, nil
}

func (t *floodTarget) absent() error {
	if err := needTools(t.tools); err != nil {
		return err
	}
	if t.available != nil {
		return t.available()
	}
	return nil
}

// runFloodCell builds the network, starts the target and its clients, floods, and counts.
func runFloodCell(ctx context.Context, config FloodsConfig, cell floodCell, result *measure.Result) (err error) {
	topology := floodsTopology(cell.target.vipAtServer, cell.target.marks)
	r := &floodRun{floodCell: cell, config: config}
	if r.Stage, err = programs.OpenStage(config.Binary, &topology); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := cell.target.start(r, ctx); err != nil {
		return err
	}
	before, err := r.usage()
	if err != nil {
		return err
	}
	peak := before
	watchCtx, stopWatch := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for programs.Sleep(watchCtx, 200*time.Millisecond) == nil {
			if now, err := r.usage(); err == nil {
				peak.ResidentBytes = max(peak.ResidentBytes, now.ResidentBytes)
			}
		}
	}()
	started := time.Now()
	offered, reached, err := r.underFlood(ctx)
	stopWatch()
	<-watched
	if err != nil {
		return err
	}
	after, err := r.usage()
	if err != nil {
		return fmt.Errorf("%w%s", err, r.output.LastOutput())
	}
	peak.ResidentBytes = max(peak.ResidentBytes, after.ResidentBytes)
	result.Elapsed = time.Since(started)
	r.fill(result, offered, reached)
	result.Figures = append(result.Figures,
		measure.Figure{Name: figureResidentBefore, Value: float64(before.ResidentBytes), Unit: "bytes"},
		measure.Figure{Name: figureResidentMax, Value: float64(peak.ResidentBytes), Unit: "bytes"},
		measure.Figure{Name: figureResidentAfter, Value: float64(after.ResidentBytes), Unit: "bytes"},
		measure.Figure{Name: figureFloodCPU, Value: (after.CPU - before.CPU).Seconds(), Unit: "s"})
	result.Processes = []measure.Process{{Name: cell.target.name, CPU: after.CPU - before.CPU, PeakBytes: peak.ResidentBytes}}
	r.judge(result)
	return nil
}

// usage is what all processes of the target hold and have spent.
func (r *floodRun) usage() (sum procstat.Usage, err error) {
	if err := r.Failure(); err != nil {
		return sum, err
	}
	for _, pid := range r.pids {
		usage, err := procstat.Of(pid)
		if err != nil {
			return sum, err
		}
		sum.CPU += usage.CPU
		sum.ResidentBytes += usage.ResidentBytes
	}
	return sum, nil
}

// attack runs the generator in its namespace.
func (r *floodRun) attack(ctx context.Context, a Attack) (sent Attacked, err error) {
	_, mac, err := r.Lab.Namespace("middle").Interface("veth2")
	if err != nil {
		return sent, err
	}
	a.Interface, a.To, a.Sources, a.Duration = "eth0", r.entry, floodsSpoofed, cmp.Or(a.Duration, r.config.Duration)
	if a.Kind == attackSetUp { // relay ports are few
		a.Duration = min(a.Duration, maximumSetUp)
	}
	a.Gateway = fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5])
	text, err := json.Marshal(a)
	if err != nil {
		return sent, err
	}
	cmd := exec.Command(r.config.Binary, "bench", "traffic", "attack") //nolint:gosec // our own binary
	cmd.Stdin = bytes.NewReader(text)
	out, err := r.Output(ctx, "attacker", cmd)
	if err == nil {
		err = json.Unmarshal(out, &sent)
	}
	if err != nil {
		return sent, fmt.Errorf("generator: %w", err)
	}
	return sent, nil
}

const maximumSetUp = 4 * time.Second

// fill writes the figures.
func (r *floodRun) fill(result *measure.Result, offered, reached float64) {
	c := &r.clients
	result.Figures = []measure.Figure{
		{Name: figureAsked, Value: offered, Unit: "/s"},
		{Name: figureReached, Value: reached, Unit: "/s"},
		{Name: figureNew, Value: float64(c.newAll)},
		{Name: figureNewOK, Value: float64(c.newOK)},
		{Name: figureMovesDue, Value: float64(c.movesDue)},
		{Name: figureMoves, Value: float64(c.moved)},
		{Name: figureMovedLost, Value: float64(c.movedLost)},
		{Name: figureAsleep, Value: float64(c.asleep)},
		{Name: figureKept, Value: float64(c.kept)},
		{Name: figureEstablished, Value: float64(c.established)},
		{Name: figureLost, Value: float64(c.lost)},
		{Name: figureSent, Value: float64(c.sent)},
		{Name: figureRepeated, Value: float64(c.repeated)},
		{Name: figureWholeLost, Value: float64(c.wholeLost)},
		{Name: figureFragmented, Value: float64(c.fragmented)},
		{Name: figureFragmentsLost, Value: float64(c.fragmentsLost)},
	}
	if r.target.certificates {
		result.Figures = append(result.Figures, measure.Figure{Name: figureReturned, Value: float64(c.returned)}, measure.Figure{Name: figureSignatures, Value: float64(c.signatures)})
		r.note(fmt.Sprintf("%d signatures for %d returned cookies", c.signatures, c.returned))
	}
	result.Requests, result.Errors = c.newOK, c.newAll-min(c.newOK, c.newAll)
	if len(r.notes) > 0 {
		result.Parameters[paramNote] = strings.Join(r.notes, "; ")
	}
	if reached < 0.9*offered {
		result.Parameters["short"] = fmt.Sprintf("reached %.0f of %.0f/s", reached, offered)
	}
}
