package bench

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/testbed/measure"
)

func liveResult(path string, rate, ownRatio float64) *measure.Result {
	return &measure.Result{
		Scenario: scenarioLive, Path: path, Parameters: map[string]string{paramLoad: livePrefix + "1024", paramFamily: "ipv4", "rounds": "1", "seconds": "1"},
		Figures: []measure.Figure{
			{Name: figureRate, Value: rate, Unit: "Mpps"},
			{Name: figureRateLow, Value: rate, Unit: "Mpps"},
			{Name: figureRateHigh, Value: rate, Unit: "Mpps"},
			{Name: figureRatio, Value: rate},
			{Name: figureFloor, Value: rate / 5},
			{Name: figureOwnRatio, Value: ownRatio},
		},
	}
}

func TestLiveSaysWhatItReached(t *testing.T) {
	failed := liveResult("weir-cid-xdp", 0, 0)
	failed.Figures, failed.Parameters[paramFailed], failed.Errors = nil, "no way", 1
	results := []*measure.Result{
		liveResult(pathFloor, 5, 0.2), liveResult(pathRouting, 1, 1), liveResult("weir-l2dsr-xdp", 3.2, 0.3), liveResult("weir-nat-xdp", 3.0, 0.3), failed,
	}
	text, page := shown(t, results)
	for name, out := range map[string]string{"table": text, "report": page} {
		if !strings.Contains(out, "weir-l2dsr-xdp") || !strings.Contains(out, "3.20") || !strings.Contains(out, "no way") {
			t.Errorf("the %s lacks a result:\n%s", name, out)
		}
		if strings.Contains(out, "zon-lb") {
			t.Errorf("the %s has a figure of zon-lb, which did not run", name)
		}
	}
	if len(failures(results)) != 1 {
		t.Errorf("%d failed", len(failures(results)))
	}
}

func TestLiveConfigNamesWhatIsWrong(t *testing.T) {
	good := GridConfig{Rounds: 1, Duration: time.Second, Paths: namesOf(livePaths()), Families: []string{"ipv4"}}
	if err := good.ValidateLive(); err != nil {
		t.Error(err)
	}
	for want, bad := range map[string]GridConfig{
		`no path "nft-dnat"; there are floor, routing`: {Rounds: 1, Duration: time.Second, Paths: []string{"nft-dnat"}},
		"0 rounds": {Duration: time.Second},
	} {
		if err := bad.ValidateLive(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s: %v", want, err)
		}
	}
}

// What the generator makes of the first flow's frame for another flow keeps its checksum, also with most flows and with
// connection ids.
func TestLiveFramesOfEveryFlowAreValid(t *testing.T) {
	for _, family := range Families() {
		for _, cid := range []bool{false, true} {
			f := flood{Source: clientAddress(family), To: vipAddress(family), Port: floodPort, Flows: 32768, CID: cid}
			udp := 34
			if family == "ipv6" {
				udp = 54
			}
			for _, flow := range []uint16{0, 1, 255, 256, 32767} {
				frame := slices.Clone(f.frame(floodFirst))
				varied := frame[udp+8+floodVaried:]
				binary.BigEndian.PutUint16(varied, binary.BigEndian.Uint16(varied)-flow)
				binary.BigEndian.PutUint16(frame[udp:], floodFirst+flow)
				pseudo := slices.Concat(f.Source.AsSlice(), f.To.AsSlice(), frame[udp:])
				if sum := onesComplement(pseudo, uint32(len(frame)-udp)+17); sum != 0 {
					t.Errorf("%s, flow %d, connection id %v: checksum off by %x", family, flow, cid, sum)
				}
			}
		}
	}
}
