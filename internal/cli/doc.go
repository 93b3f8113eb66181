// Package cli is what the commands of weir share: the root command, exit codes, signals, shell completion, manual pages, and the
// flags that several commands have: -c, --admin, --metrics, --log, durations.
//
// The commands themselves are in the packages below it, one for each family (internal/cli/snat is weir snat): flags, help and
// wiring, nothing else. A family exports one function, Family, which cmd/weir passes to [Run]; families do not import each other.
// What several families share is in packages of its own: files (configuration files), balancing (about load balancing) and
// measuring (about measurements). clitest runs commands in tests.
//
//	func main() {
//		hangups := cli.CatchHangups() // first, so that an early SIGHUP does not end the process
//		os.Exit(cli.Run(hangups, os.Args[1:], []cli.Family{snat.Family()}))
//	}
package cli
