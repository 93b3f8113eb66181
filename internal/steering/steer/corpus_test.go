package steer_test

import (
	"testing"

	"github.com/weir-lb/weir/internal/steering/steer/steertest"
)

func TestCorpus(t *testing.T) {
	steertest.Run(t, func(*testing.T) steertest.Path { return &steertest.Engine{} })
}

func TestCorpusAsRouter(t *testing.T) {
	steertest.Run(t, func(*testing.T) steertest.Path { return &steertest.Engine{Router: true} })
}
