package steer_test

import (
	"testing"

	"github.com/weir-lb/weir/internal/steering/steer/steertest"
)

func TestCorpus(t *testing.T) {
	noRouter := map[string]string{"ttl": "no router", "ttl-v6": "no router"}
	steertest.Run(t, noRouter, func(*testing.T) steertest.Path { return &steertest.Engine{} })
}

func TestCorpusAsRouter(t *testing.T) {
	golden := map[string]string{"l3dsr-golden": "no router"}
	steertest.Run(t, golden, func(*testing.T) steertest.Path { return &steertest.Engine{Router: true} })
}
