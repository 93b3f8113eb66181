// Package netlabtest is how a test that needs root gets its network.
//
// Such a test is named TestRoot…, begins with [Up] or [Root], and skips without privilege. Under WEIR_ROOT=1, as in
// CI, the skip is a failure instead: a root test that did not run has proved nothing.
//
// [Weir] and [DeployTool] are the programs of this repository for tests that run them as a user has them, in networks or images.
package netlabtest
