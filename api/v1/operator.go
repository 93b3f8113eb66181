package v1

// OperatorStatus is what `weir operator` answers at /status.
type OperatorStatus struct {
	// Leader is false while another operator writes.
	Leader      bool                 `json:"leader"`
	Renders     uint64               `json:"renders"`         // times that the state of the world was rendered since the start
	Failures    uint64               `json:"failures"`        // renders of which something could not be read or written
	Error       string               `json:"error,omitempty"` // of the last render; absent: it was complete
	Objects     int                  `json:"objects"`         // objects of the last render
	Controllers []OperatorController `json:"controllers"`     // in the order in which they translate
}

// OperatorController is one controller of an operator.
type OperatorController struct {
	Name   string          `json:"name"`             // spec.controllerName of its GatewayClasses
	Planes []OperatorPlane `json:"planes,omitempty"` // data planes that it configures, by name; absent: none
}

// OperatorPlane is a data plane that an operator configures.
type OperatorPlane struct {
	Name      string `json:"name"`              // unique in its controller
	Published string `json:"published"`         // revision of the configuration that it should run
	Applied   string `json:"applied,omitempty"` // revision that all of its processes run; absent: not known
}
