package balancing

import (
	"errors"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/control/tree"
)

// Configuration lets the admin API change the configuration of a loop.
func Configuration(loop *control.Loop) *admin.Configuration {
	return &admin.Configuration{
		Get: func(path string) (*v1.Configuration, error) {
			c, err := loop.Config(path)
			return c, refused(err)
		},
		Change: func(by string, request v1.ConfigRequest) (*v1.ConfigAnswer, error) {
			answer, err := loop.ChangeConfig(by, request)
			return answer, refused(err)
		},
		Diff: loop.DiffConfig,
		Save: func(by, match string) (*v1.ConfigAnswer, error) {
			answer, err := loop.SaveConfig(by, match)
			return answer, refused(err)
		},
		Revert: func(by, match string) (*v1.ConfigAnswer, error) {
			answer, err := loop.RevertConfig(by, match)
			return answer, refused(err)
		},
		Watch: loop.WatchConfig,
	}
}

// refused gives an error of control the status that admin answers with.
func refused(err error) error {
	if err == nil {
		return nil
	}
	refusal := v1.Refusal{Error: err.Error()}
	var conflict *control.ConflictError
	kind := error(nil)
	switch {
	case errors.As(err, &conflict):
		kind = admin.ErrConflict
		refusal.Generation, refusal.ETag = conflict.Generation, conflict.ETag
	case errors.Is(err, control.ErrNoTarget), errors.Is(err, tree.ErrAbsent):
		kind = admin.ErrAbsent
	case errors.Is(err, tree.ErrExists), errors.Is(err, control.ErrReadOnly), errors.Is(err, control.ErrNoFile), errors.Is(err, config.ErrFileChanged):
		kind = admin.ErrRefused
	default:
		return err
	}
	return &admin.RefusedError{Err: kind, Refusal: refusal}
}
