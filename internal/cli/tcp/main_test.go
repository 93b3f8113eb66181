package tcp

import (
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/snat"
)

func TestMain(m *testing.M) { clitest.Main(m, Family(), snat.Family()) }
