package pins

import (
	"testing"

	"github.com/weir-lb/weir/internal/testbed/netlab/netlabtest"
)

func TestMain(m *testing.M) { netlabtest.MainSideBySide(m) }
