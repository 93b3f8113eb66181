package coap

import (
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/lb"
	"github.com/weir-lb/weir/internal/cli/nat"
)

func TestMain(m *testing.M) { clitest.Main(m, Family(), lb.Family(), nat.Family()) }
