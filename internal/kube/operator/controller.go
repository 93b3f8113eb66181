package operator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weir-lb/weir/internal/kube/world"
)

// Controller serves the GatewayClasses of one controller name.
type Controller struct {
	// Name is spec.controllerName of its GatewayClasses, such as weir-lb.github.io/l4. It also names the controller in field managers, labels and logs.
	Name string
	// Kinds are what Translate reads.
	Kinds []Kind
	// Owned are the kinds of Result.Objects.
	Owned []Kind
	// Secrets are the names of those that Translate reads, by its own references; nil: none. Nothing else of Secrets is read. It is pure.
	Secrets func(*world.World) []types.NamespacedName
	// Translate renders the world. It is pure, and called from one goroutine at a time.
	Translate func(*world.World) Result
	// Publisher takes the configurations; nil: the controller has none.
	Publisher Publisher
	// Everywhere: every operator publishes, from its own caches; else the leader alone, which writes.
	Everywhere bool
}

// Kind is a kind of objects that informers follow.
type Kind struct {
	Object   client.Object     // empty
	List     client.ObjectList // empty
	Optional bool              // the API server may not serve it
	// Needed says by the objects of the kinds before it whether the kind is followed; nil: always. Once it was followed it is for ever.
	Needed func(objects []client.Object) bool
	// Reduce removes from a new object what no controller reads, before it is kept; nil: nothing. Needed with metadata alone.
	Reduce func(object client.Object)
}

// Result is what a Controller makes of the world.
type Result struct {
	Configs  []Config
	Statuses []StatusChange
	Objects  []client.Object // with apiVersion and kind
	Stay     []client.Object // of Owned kinds: what is there of them stays as it is, although Objects does not have it
	Events   []Event
}

// Config is the configuration of one data plane.
type Config struct {
	Plane string // unique within the controller
	Text  []byte
	// Pieces are digests of what the conditions of objects wait for, by any name, such as that of a Gateway.
	Pieces map[string]string
}

// Revision names the text: data planes report it when they have applied it.
func (c *Config) Revision() string { return Digest(c.Text) }

// Digest is the name of a text, 32 hexadecimal digits.
func Digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16])
}

// Publisher brings the configurations of a controller to its data planes.
type Publisher interface {
	// Publish replaces all configurations. It does not wait for data planes.
	Publish(configs []Config) error
	// Applied returns the revision that all processes of each plane run; a plane of which that is not known is missing.
	Applied() map[string]string
	// Run works until ctx ends, and calls changed whenever the answer of Applied may be another one.
	Run(ctx context.Context, changed func()) error
}

// Relayer is a Publisher whose Run, where Relays says so, also works in an operator that does not lead: it gives out what the leader publishes.
type Relayer interface {
	Relays() bool
}

// Refuser is a Publisher that learns why data planes refuse a configuration.
type Refuser interface {
	// Refused returns the reasons by plane, for people; a plane that refuses nothing is missing. It changes as Applied does.
	Refused() map[string]string
}

// StatusChange is a part of the status of an object.
type StatusChange struct {
	Object client.Object // as it is in the world
	change func(client.Object)
}

// Status changes the status of object, or a part of it: change gets a copy that it may write to, with what other controllers
// have changed in this round.
func Status[T client.Object](object T, change func(T)) StatusChange {
	return StatusChange{Object: object, change: func(copied client.Object) { change(copied.(T)) }}
}

// Apply returns a copy of the object with the change.
func (s *StatusChange) Apply() client.Object {
	copied := s.Object.DeepCopyObject().(client.Object)
	s.change(copied)
	return copied
}

// Event is written on an object.
type Event struct {
	Object  client.Object
	Warning bool
	Reason  string // in CamelCase, such as AddressInUse
	Action  string // what was being done, in CamelCase, such as Translate
	Note    string // at most 1 KiB
}
