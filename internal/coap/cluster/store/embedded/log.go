package embedded

import (
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logger passes what etcd reports as an error to log, as a warning: the node goes on without it. What etcd would end the process for ends
// the goroutine.
func logger(log *slog.Logger) *zap.Logger {
	return zap.New(core{log}, zap.WithFatalHook(zapcore.WriteThenGoexit))
}

type core struct{ log *slog.Logger }

func (core) Enabled(level zapcore.Level) bool    { return level >= zapcore.ErrorLevel }
func (c core) With([]zapcore.Field) zapcore.Core { return c }
func (core) Sync() error                         { return nil }

func (c core) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	var cause any
	for i := range fields {
		if fields[i].Type == zapcore.ErrorType {
			cause = fields[i].Interface
		}
	}
	c.log.Warn("the embedded store reports an error", "message", e.Message, "cause", cause)
	return nil
}
