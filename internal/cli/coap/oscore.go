package coap

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weir-lb/weir/internal/coap/node"
	"github.com/weir-lb/weir/internal/coap/oscore"
)

// Sequence numbers that one run of a command takes at a time. What it does not use is lost, and a server forgets numbers more than
// its replay window back, so a run with few requests takes few.
const (
	fewRequests  = 16
	manyRequests = 4096
)

// maxOSCORE is the longest message that a client protects, in bytes.
const maxOSCORE = 65536

// oscoreFlags is --oscore of a client.
type oscoreFlags struct{ name string }

func (f *oscoreFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.name, "oscore", "", "protect the messages end to end (OSCORE, RFC 8613): FILE with one security context, FILE#NAME, or test for the public one of Californium's plugtest server")
}

// context is the security context of the flag; nil without.
func (f *oscoreFlags) context(step uint64) (*oscore.Context, error) {
	if f.name == "" {
		return nil, nil
	}
	if f.name == node.TestOSCORE().Name {
		folder, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("--oscore test: no folder for the sequence numbers: %w; use --oscore FILE", err)
		}
		return oscore.New(node.TestOSCORE(), oscore.NewFileStore(filepath.Join(folder, "weir", "oscore-test.state")), step)
	}
	path, name, named := strings.Cut(f.name, "#")
	return oscore.LoadOne(path, name, named, step)
}

// protector is what protects the requests of one connection; nil without the flag.
func (f *oscoreFlags) protector(step uint64) (*oscore.Client, error) {
	context, err := f.context(step)
	if context == nil || err != nil {
		return nil, err
	}
	return oscore.NewClient(context, maxOSCORE), nil
}
