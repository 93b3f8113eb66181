// Package tree has a configuration as a tree of JSON values, so that it can be changed object by object at run time.
//
// A tree is what encoding/json makes of a document: map[string]any, []any, string, json.Number and bool. The Go type that config.Decode
// reads, as a [Shape], says which lists have named items: services, backends and flow rules by their key name, VIPs by protocol, address and
// port. A path names an object by these names, each escaped as in a URL:
//
//	/services/echo/backends/a/weight
//	/services/echo/vips/udp:192.0.2.0%2F24:53
//
//	Of        text → tree          Rewrite   text + tree → text with comments and layout kept
//	Set, Patch, Add, Remove        one change each; applying it twice has no further effect
//	Diff      two trees → differences by path
//	Merge     three trees: what the file said before, what is in force, what the file says now → what is in force next
//
// Rewrite changes the bytes of the objects that differ, and no others. It reads its own result again; if that is not the wanted tree, or a
// comment would be lost, it returns an error and no text.
package tree
