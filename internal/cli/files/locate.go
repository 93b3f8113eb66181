package files

import (
	"regexp"
	"strings"

	"github.com/weir-lb/weir/internal/control/config"
)

// Locate adds the file and line to an error that begins with the path of a key. Other errors are returned unchanged.
func Locate(document *config.Document, err error) error {
	if err == nil || document == nil {
		return err
	}
	path, message, found := strings.Cut(err.Error(), ": ")
	if !found || !regexp.MustCompile(`^[a-z0-9_]+(\[\d+\])?(\.[a-z0-9_]+(\[\d+\])?)*$`).MatchString(path) {
		return err
	}
	return document.Errorf(path, "%s", message)
}
