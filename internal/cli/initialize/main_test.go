package initialize

import (
	"testing"

	"github.com/weir-lb/weir/internal/cli/check"
	"github.com/weir-lb/weir/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, Family(), check.Family()) }
