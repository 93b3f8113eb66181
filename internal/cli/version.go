package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// BuildInfo is what `weir version --json` prints.
type BuildInfo struct {
	Version  string `json:"version"`  // module version, "(devel)" for a build from a checkout
	Revision string `json:"revision"` // commit, empty when built without version control
	Time     string `json:"time"`     // commit time, RFC 3339
	Modified bool   `json:"modified"` // the checkout differed from the commit
	Go       string `json:"go"`
	Platform string `json:"platform"` // os/architecture
	Kernel   string `json:"kernel"`   // release of the running kernel
}

// String is what `weir version` and `weir --version` print.
func (i BuildInfo) String() string {
	revision := i.Revision
	if revision == "" {
		revision = "unknown commit"
	}
	if i.Modified {
		revision += " (modified)"
	}
	return fmt.Sprintf("weir %s, %s, %s, %s, Linux %s", i.Version, revision, i.Go, i.Platform, i.Kernel)
}

func newVersionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, commit and Go version this binary was built from, and the kernel it runs on",
		Example: `  weir version
  weir --version
  weir version --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := ReadBuildInfo()
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(info)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), info)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// ReadBuildInfo reads it from this binary and the kernel.
func ReadBuildInfo() BuildInfo {
	info := BuildInfo{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Kernel: "unknown"}
	var kernel unix.Utsname
	if unix.Uname(&kernel) == nil {
		info.Kernel = unix.ByteSliceToString(kernel.Release[:])
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	if build.Main.Version != "" {
		info.Version = build.Main.Version
	}
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			info.Revision = setting.Value
		case "vcs.time":
			info.Time = setting.Value
		case "vcs.modified":
			info.Modified = setting.Value == "true"
		}
	}
	return info
}
