// Package netlabtest is how a test that needs root gets its network.
//
// Such a test is named TestRoot…, begins with [Up] or [Root], and skips without privilege. Under WEIR_ROOT=1, as in
// CI, the skip is a failure instead: a root test that did not run has proved nothing.
package netlabtest
