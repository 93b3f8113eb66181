package privilege

import (
	"log/slog"
	"os"
)

// WarnKeyFile warns of a file with a secret that its group or others can read. A path that is empty or cannot be read is
// the business of whoever reads it.
func WarnKeyFile(log *slog.Logger, what, path string) {
	if path == "" {
		return
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&0o044 == 0 {
		return
	}
	log.Warn("others than its owner can read this file of secrets", "what", what, "file", path, "mode", info.Mode().Perm().String(), "remedy", "chmod go-rwx, or chown to the user that runs weir")
}
