package control

import (
	"fmt"

	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/control/tree"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// mergeLocked puts a changed file into force while there are run-time changes: they stay for the objects whose own text the file has not
// changed. The file must be valid alone and with them.
func (l *Loop) mergeLocked(name string, text []byte, spec lb.Spec, document *config.Document) error {
	if _, err := l.compileLocked(spec, document, l.overrides); err != nil {
		return l.failLocked(err)
	}
	shape := specShape()
	base, err := l.doc.baseTree()
	if err != nil {
		return l.failLocked(err)
	}
	file, err := tree.Of(shape, name, text)
	if err != nil {
		return l.failLocked(err)
	}
	before := l.doc.running
	merged, dropped := tree.Merge(shape, base, before, file)
	differences := tree.Diff(shape, before, merged)
	if tree.Equal(merged, file) {
		merged = nil
	} else if spec, err = specOf(merged); err == nil {
		document = nil
	}
	if err == nil {
		err = l.putLocked(spec, document)
	}
	if err != nil {
		return l.failLocked(fmt.Errorf("%s is valid, but not together with the run-time changes (weir lb diff shows them, weir lb revert ends them): %w", name, byName(err, merged)))
	}
	l.failure = nil
	l.doc.name, l.doc.text, l.doc.base, l.doc.running = name, text, file, merged
	l.revision = Revision(text)
	l.eventLocked(change{by: "file " + name, action: "file", after: merged, differences: differences, dropped: dropped})
	return nil
}
