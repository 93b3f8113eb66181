package gateway

import "errors"

// Apply changes to another config: all of it or, with an error, nothing. (Helper D: from openListenerLocked,
// closeListenerLocked, routeLocked, policyLocked with shared.SetPolicy, and policyChanged.)
func (g *Gateway) Apply(c Config) (Change, error) { return Change{}, errors.ErrUnsupported }
