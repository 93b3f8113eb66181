package operator

import "github.com/weir-lb/weir/internal/cli"

// Family is weir operator.
func Family() cli.Family { return cli.Family{Command: newOperatorCommand} }
