package maps

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
)

// Load loads an object on those of the maps that it names; the sections that are maps too (".rodata") are its own.
func Load(maps map[string]*ebpf.Map, spec *ebpf.CollectionSpec, what string) (*ebpf.Collection, error) {
	options := ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{}}
	for name, m := range maps {
		if !strings.HasPrefix(name, ".") && spec.Maps[name] != nil {
			options.MapReplacements[name] = m
		}
	}
	c, err := ebpf.NewCollectionWithOptions(spec, options)
	if err != nil {
		var verifier *ebpf.VerifierError
		if errors.As(err, &verifier) {
			return nil, fmt.Errorf("load the %s (this kernel's verifier refuses it; 6.6 or newer is needed): %w", what, err)
		}
		return nil, fmt.Errorf("load the %s: %w", what, err)
	}
	return c, nil
}
