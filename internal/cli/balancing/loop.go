package balancing

import (
	"errors"
	"log/slog"

	"github.com/weir-lb/weir/internal/control"
	"github.com/weir-lb/weir/internal/control/admin"
	"github.com/weir-lb/weir/internal/metrics"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Liveness converts the data path's reports about silent backends into overrides.
func Liveness(loop **control.Loop, log *slog.Logger) func(lb.Target, bool) {
	return func(target lb.Target, silent bool) {
		value := lb.NoOverride
		if silent {
			value = lb.OverrideDown
		}
		if err := (*loop).Override(target, lb.FromDatapath, value); err != nil {
			log.Error("silent backend not taken out", "target", target.String(), "error", err)
		}
	}
}

// Override passes overrides from the admin API to the loop.
func Override(loop *control.Loop) func(by, service, backend, value string) error {
	return func(by, service, backend, value string) error {
		var override lb.Override
		if err := override.UnmarshalText([]byte(value)); err != nil {
			return err
		}
		err := loop.OverrideBy(by, lb.Target{Service: service, Backend: backend}, override)
		if errors.Is(err, control.ErrNoTarget) {
			return unknownTarget{err}
		}
		return err
	}
}

// unknownTarget is an error of control that admin answers with status 404.
type unknownTarget struct{ error }

func (unknownTarget) Is(target error) bool { return target == admin.ErrUnknownTarget }

// Samples returns the metrics of the control loop, the same for each data path.
func Samples(loop *control.Loop) []metrics.Sample {
	return metrics.Of(loop.Status(), loop.Timings())
}
