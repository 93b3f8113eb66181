package bench

import (
	"testing"

	"github.com/weir-lb/weir/internal/cli/clitest"
	"github.com/weir-lb/weir/internal/cli/coap"
	"github.com/weir-lb/weir/internal/cli/lab"
	"github.com/weir-lb/weir/internal/cli/lb"
	"github.com/weir-lb/weir/internal/cli/nat"
	"github.com/weir-lb/weir/internal/cli/operator"
	"github.com/weir-lb/weir/internal/cli/tcp"
	"github.com/weir-lb/weir/internal/cli/turn"
)

func TestMain(m *testing.M) {
	clitest.Main(m, Family(), coap.Family(), lab.Family(), lb.Family(), nat.Family(), operator.Family(), tcp.Family(), turn.Family())
}
