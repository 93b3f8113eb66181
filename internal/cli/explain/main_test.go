package explain

import (
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m, Family()) }
