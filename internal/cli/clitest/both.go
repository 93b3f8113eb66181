package clitest

import (
	"bytes"
	"testing"
)

// Both is Execute, and returns standard error too.
func Both(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	root := Root()
	root.SetArgs(args)
	var out, errs bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&errs)
	err = root.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}
