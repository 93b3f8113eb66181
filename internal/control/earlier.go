package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/weir-lb/weir/internal/readfile"
	"github.com/weir-lb/weir/internal/steering/lb"
)

const (
	historyFormat = 1
	maxHistory    = 64 << 20 // bytes of the file
)

type historyFile struct {
	Format int `json:"format"`
	lb.History
}

// recallTables reads which tables the process before this one had, or another balancer whose file was copied. Without it only
// changes from now on leave earlier tables.
func (l *Loop) recallTables() {
	if l.tablesFile == "" {
		return
	}
	var file historyFile
	text, err := readfile.Read(l.tablesFile, maxHistory)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err == nil:
		err = json.Unmarshal(text, &file)
	}
	if err == nil && file.Format != historyFormat {
		err = fmt.Errorf("format %d is not %d, that of this version", file.Format, historyFormat)
	}
	if err == nil {
		err = file.Check()
	}
	if err != nil {
		l.log.Error("the earlier tables that were kept cannot be used", "event", "earlier_tables_unreadable", "file", l.tablesFile, "error", err)
		return
	}
	l.history = file.History
}

// keepTablesLocked writes which tables there are, if that has changed.
func (l *Loop) keepTablesLocked(snapshot *lb.Snapshot) {
	l.history = lb.History{} // from now on, the snapshot has it
	if l.tablesFile == "" {
		return
	}
	text, err := json.Marshal(historyFile{historyFormat, snapshot.History()})
	if err == nil && !bytes.Equal(text, l.tablesKept) {
		if err = readfile.Replace(l.tablesFile, text); err == nil {
			l.tablesKept = text
		}
	}
	if err != nil {
		l.log.Error("keep the tables for the next start", "event", "earlier_tables_not_kept", "file", l.tablesFile, "error", err)
	}
}

// runExpiry applies the configuration again whenever the time of an earlier table is over, until ctx ends.
func (l *Loop) runExpiry(ctx context.Context) {
	for {
		var over <-chan time.Time
		if snapshot := l.applied.Load(); snapshot != nil {
			if at := snapshot.Expires(); !at.IsZero() {
				over = time.After(time.Until(at))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-l.tables:
		case <-over:
			l.mu.Lock()
			err := l.applyLocked(*l.spec, l.document, l.overrides)
			l.mu.Unlock()
			if err == nil {
				continue
			}
			l.log.Error("leave an earlier table behind", "event", "earlier_tables_kept", "error", err)
			select { // until the next change
			case <-ctx.Done():
				return
			case <-l.tables:
			}
		}
	}
}
