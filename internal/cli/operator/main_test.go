package operator

import (
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap"
	"github.com/weir-lb/weir/internal/cli/lb"
)

func TestMain(m *testing.M) { clitest.Main(m, Family(), coap.Family(), lb.Family()) }
