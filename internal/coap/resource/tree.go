package resource

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-lb/weir/internal/coap/message"
)

// Resource is what is at one path. A method that is nil is answered with 4.05.
type Resource struct {
	Get, Post, Put, Delete, Fetch, Patch, IPatch func(*Request)

	Attributes []Attribute // of its link in /.well-known/core
	Hidden     bool        // not listed
	// Links lists the resource instead of Attributes, when that changes with time. It may name paths below the resource.
	Links func(list func(path string, attributes ...Attribute))
	// Below also serves every path below this one that has no resource of its own.
	Below bool
	// Repeatable: every method may be executed again for each block of its answer, so that the answer is not stored.
	Repeatable bool
	// Protected: only requests that are protected by OSCORE (RFC 8613) are taken; others are answered with 4.01.
	Protected bool
	// Topic makes the resource observable with GET and FETCH (RFC 7641).
	Topic *Topic

	// State returns the entity tag of the present representation, nil if it has none, and whether there is one. If-Match and
	// If-None-Match are checked against it (RFC 7252 section 5.10.8). nil: there is one, without a tag.
	State func(*Request) (etag []byte, exists bool)
	// Unmet is called after a request that failed its condition was answered with 4.12; nil: no call.
	Unmet func()
}

func (r *Resource) method(code message.Code) func(*Request) {
	switch code {
	case message.GET:
		return r.Get
	case message.POST:
		return r.Post
	case message.PUT:
		return r.Put
	case message.DELETE:
		return r.Delete
	case message.FETCH:
		return r.Fetch
	case message.PATCH:
		return r.Patch
	case message.IPATCH:
		return r.IPatch
	}
	return nil
}

// Tree is a set of resources by path. It is built once and must not change while a Server uses it.
type Tree struct{ resources map[string]*Resource }

// NewTree returns a tree with /.well-known/core.
func NewTree() *Tree {
	t := &Tree{resources: map[string]*Resource{}}
	t.Add("/.well-known/core", &Resource{Hidden: true, Get: t.serveCore})
	return t
}

// Add puts a resource at a path, which begins with a slash. It panics if the path is taken: the set is part of the program.
func (t *Tree) Add(path string, r *Resource) {
	if _, taken := t.resources[path]; taken || !strings.HasPrefix(path, "/") || len(path) > maxPath {
		panic(fmt.Sprintf("coap resource: path %q is taken or no path", path))
	}
	t.resources[path] = r
}

// Paths returns all paths in order, the hidden ones included.
func (t *Tree) Paths() []string { return slices.Sorted(maps.Keys(t.resources)) }

// maxPath is the longest path looked up, in bytes; longer ones are not found.
const maxPath = 128

func (t *Tree) find(path []byte) (*Resource, bool) {
	if found, ok := t.resources[string(path)]; ok {
		return found, true
	}
	for i := len(path) - 1; i > 0; i-- {
		if path[i] == '/' {
			if found, ok := t.resources[string(path[:i])]; ok {
				return found, found.Below
			}
		}
	}
	return nil, false
}

// appendPath appends the path of m to dst without growing it. A path that is too long, or has a slash inside a segment,
// becomes one that is not found.
func appendPath(dst []byte, m *message.Message) []byte {
	for options := m.Options(); options.Next() && options.ID() <= message.URIPath; {
		if options.ID() != message.URIPath {
			continue
		}
		segment := options.Value()
		if len(dst)+1+len(segment) > cap(dst) {
			return append(dst[:0], '?')
		}
		for _, c := range segment {
			if c == '/' {
				return append(dst[:0], '?')
			}
		}
		dst = append(append(dst, '/'), segment...)
	}
	if len(dst) == 0 {
		dst = append(dst, '/')
	}
	return dst
}
