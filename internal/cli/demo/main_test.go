package demo

import (
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap"
	"github.com/weir-lb/weir/internal/cli/nat"
)

func TestMain(m *testing.M) { clitest.Main(m, Family(), coap.Family(), nat.Family()) }
