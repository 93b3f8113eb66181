package snat_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/control/config/configtest"
	"github.com/weir-lb/weir/internal/keyerror"
	"github.com/weir-lb/weir/internal/snat"
)

// decode reads a file as the command does: an error has the place of its key.
func decode(name string, text []byte) (snat.File, error) {
	file, document, err := config.Decode[snat.File](name, text)
	if err != nil {
		return file, err
	}
	if err := file.Validate(); err != nil {
		var wrong *keyerror.Error
		if !errors.As(err, &wrong) || !regexp.MustCompile(`^scenarios(\[\d+\](\.[a-z_]+(\[\d+\])?)+)?$`).MatchString(wrong.Key) {
			return file, fmt.Errorf("no path in %w", err)
		}
		return file, document.Locate(err)
	}
	return file, nil
}

func TestExamplesAreValid(t *testing.T) {
	files, err := filepath.Glob("../../examples/snat/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	kinds := map[snat.Kind]bool{}
	for _, file := range files {
		for _, s := range load(t, file) {
			for _, p := range s.Path {
				kinds[p.Kind] = true
			}
			if p := s.Plan(); p.Holds == 0 || p.Why == "" {
				t.Errorf("%s: %s: %+v", file, s.Name, p)
			}
		}
	}
	for _, k := range snat.Kinds() {
		if !kinds[k] {
			t.Errorf("no example has a stage %s", k)
		}
	}
}

func TestBadFiles(t *testing.T) {
	configtest.Bad(t, 15, ":2:", func(file string, text []byte) error { _, err := decode(file, text); return err })
}

// simulateBriefly holds a second of a scenario, if it is small, against its plan.
func simulateBriefly(t *testing.T, s snat.Scenario) {
	s.Traffic.Duration = time.Second
	if s.Replicas > 100 || s.Nodes > 100 || s.Destinations > 10 || s.Servers > 100 || s.ServerNodes > 100 || s.Traffic.Rate*float64(s.Replicas) > 1e4 || s.Traffic.Burst > 1000 ||
		s.Traffic.Burst > 0 && s.Traffic.BurstEvery < 100*time.Millisecond || s.Traffic.Policy == snat.Keep && float64(s.Connections) > 1e5 {
		return
	}
	run, err := snat.Simulate(t.Context(), s, nil)
	if err != nil {
		t.Fatalf("%+v: %v", s, err)
	}
	if p := s.Plan(); run.Peak > p.Ceiling || run.Last < 0 || run.Opened > run.Attempts || run.Closed > run.Opened {
		t.Fatalf("%+v: ceiling %d, %+v", s, p.Ceiling, run)
	}
	for _, st := range run.Stages {
		if st.Fullest > st.PerKey && st.Kind != string(snat.GCPNAT) || st.Ports > 0 && st.PeakHeld > st.Ports {
			t.Fatalf("%+v: %+v", s, st)
		}
	}
}

func FuzzFile(f *testing.F) {
	configtest.Seeds(f, "../../examples/snat/*.yaml", "testdata/bad/*.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<13 {
			return
		}
		file, err := decode("f", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Fatalf("error without a place: %v", err)
			}
			return
		}
		for _, s := range file.Scenarios[:min(len(file.Scenarios), 3)] {
			s = s.WithDefaults()
			if p := s.Plan(); p.Holds < 0 || p.Holds > p.Demand || p.Whole > p.Holds || p.NewPerSecond < 0 {
				t.Fatalf("%+v: %+v", s, p)
			}
			simulateBriefly(t, s)
		}
	})
}
