package lb

import (
	"testing"

	"github.com/weir-lb/weir/internal/cli/check"
	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/explain"
)

func TestMain(m *testing.M) { clitest.Main(m, Family(), check.Family(), explain.Family()) }
