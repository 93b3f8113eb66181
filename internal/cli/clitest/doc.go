// Package clitest runs commands of weir in tests: in the test's process ([Execute], [Weir]) or as processes of their own ([Start]),
// for which the test binary behaves as weir. A package that uses it has
//
//	func TestMain(m *testing.M) { clitest.Main(m, Family()) }
//
// with the families whose commands its tests run.
package clitest
