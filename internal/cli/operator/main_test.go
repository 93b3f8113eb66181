package operator

import (
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/lb"
)

func TestMain(m *testing.M) { clitest.Main(m, Family(), lb.Family()) }
