package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/weir-lb/weir/api/v1"
	"github.com/weir-lb/weir/internal/control/config"
	"github.com/weir-lb/weir/internal/control/tree"
	"github.com/weir-lb/weir/internal/steering/lb"
)

// Errors of run-time changes that a caller distinguishes.
var (
	ErrReadOnly = errors.New("the configuration is not changed here")
	ErrNoFile   = errors.New("there is no file to write")
)

// ConflictError says that another configuration is in force than the one that a change was made for.
type ConflictError struct {
	Wanted, ETag string
	Generation   uint64
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("configuration %d is in force (etag %s), not %s: another change came first; read the configuration and make the change again", e.Generation, e.ETag, e.Wanted)
}

// maxConfigChanges bounds one batch.
const maxConfigChanges = 10_000

func specShape() tree.Shape { return tree.ShapeOf[lb.Spec]() }

// documentState is the configuration as a document: what its file says, and what is in force.
type documentState struct {
	file     *config.File // nil: it is from elsewhere
	name     string
	text     []byte // that is in force, without run-time changes
	base     any    // tree of text; nil: it is made when it is needed
	running  any    // tree that is in force, with run-time changes; nil: it is base
	readOnly string // why there are no run-time changes
	events   events
}

// changed reports whether there are run-time changes that the file has not.
func (d *documentState) changed() bool { return d.running != nil }

func (d *documentState) baseTree() (any, error) {
	if d.base == nil {
		made, err := tree.Of(specShape(), d.name, d.text)
		if err != nil {
			return nil, err
		}
		d.base = made
	}
	return d.base, nil
}

func (d *documentState) runningTree() (any, error) {
	if d.running != nil {
		return d.running, nil
	}
	return d.baseTree()
}

// writableLocked says why a run-time change is not possible.
func (l *Loop) writableLocked(match string) error {
	switch d := &l.doc; {
	case l.spec == nil:
		return fmt.Errorf("%w: nothing is configured yet", ErrReadOnly)
	case d.readOnly != "":
		return fmt.Errorf("%w: %s", ErrReadOnly, d.readOnly)
	}
	return l.doc.events.matches(match)
}

// ChangeConfig makes changes of the configuration, all or none, in the name of by. An error leaves everything as it was. Without a
// difference from what is in force nothing happens, and the generation stays.
func (l *Loop) ChangeConfig(by string, r v1.ConfigRequest) (*v1.ConfigAnswer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(r.If); err != nil {
		return nil, err
	}
	before, err := l.doc.runningTree()
	if err != nil {
		return nil, err
	}
	after, err := applyChanges(tree.Clone(before), r.Changes)
	if err != nil {
		return nil, err
	}
	differences := tree.Diff(specShape(), before, after)
	answer := &v1.ConfigAnswer{Changed: len(differences) > 0, DryRun: r.DryRun}
	answer.Differences, answer.More = shownDifferences(differences, v1.MaxConfigDifferences)
	write := (r.Write || l.writeBack) && !r.DryRun && (answer.Changed || l.doc.changed())
	switch {
	case r.DryRun:
		err = l.dryRunLocked(after, answer)
	case answer.Changed || write:
		err = l.putTreeLocked(change{by: by, action: "change", after: after, differences: differences, write: write}, answer)
	}
	if err != nil {
		return nil, err
	}
	return l.answeredLocked(answer), nil
}

func (l *Loop) answeredLocked(answer *v1.ConfigAnswer) *v1.ConfigAnswer {
	answer.Generation, answer.ETag, answer.Unsaved = l.doc.events.generation, l.doc.events.etag(), l.doc.changed()
	if l.doc.file != nil {
		answer.File = l.doc.file.Path()
	}
	return answer
}

// applyChanges makes changes of a tree, which it may use.
func applyChanges(root any, changes []v1.ConfigChange) (any, error) {
	if len(changes) > maxConfigChanges {
		return nil, fmt.Errorf("%d changes; make at most %d in one batch", len(changes), maxConfigChanges)
	}
	for i, c := range changes {
		made, err := applyChange(root, c)
		if err != nil && len(changes) > 1 {
			err = fmt.Errorf("changes[%d]: %w", i, err)
		}
		if err != nil {
			return nil, err
		}
		root = made
	}
	return root, nil
}

func applyChange(root any, c v1.ConfigChange) (any, error) {
	shape := specShape()
	path, err := tree.Split(c.Path)
	if err != nil {
		return nil, err
	}
	if c.Op == "remove" {
		return tree.Remove(shape, root, path)
	}
	var value any
	if len(c.Value) > 0 {
		if value, err = tree.Read(shape.At(path), c.Value); err != nil {
			return nil, fmt.Errorf("%s: the value is not JSON: %w", c.Path, err)
		}
	}
	switch c.Op {
	case "set":
		return tree.Set(shape, root, path, value)
	case "merge":
		return tree.Patch(shape, root, path, value)
	case "add":
		return tree.Add(shape, root, path, value)
	}
	return nil, fmt.Errorf("op %q is not known; write set, merge, add or remove", c.Op)
}

// specOf decodes a tree as strictly as a file.
func specOf(root any) (lb.Spec, error) {
	text, err := json.Marshal(root)
	if err != nil {
		return lb.Spec{}, err
	}
	spec, _, err := config.Decode[lb.Spec]("configuration", text)
	return spec, byName(err, root)
}

// byName returns the errors of a configuration with the path of each value by the names of the objects, without a line: a run-time
// change has no file.
func byName(err error, root any) error {
	if err == nil {
		return nil
	}
	var lines []string
	var add func(err error)
	add = func(err error) {
		var at *config.Error
		var wrong *lb.Error
		if several, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // each one is unwrapped below
			for _, one := range several.Unwrap() {
				add(one)
			}
			return
		}
		switch {
		case errors.As(err, &at):
			lines = append(lines, fmt.Sprintf("%s: %s", tree.NamePath(specShape(), root, at.Path), at.Message))
		case errors.As(err, &wrong):
			lines = append(lines, fmt.Sprintf("%s: %s; %s", tree.NamePath(specShape(), root, wrong.Path), wrong.What, wrong.Remedy))
		default:
			lines = append(lines, err.Error())
		}
	}
	add(err)
	return &InvalidError{Lines: lines, cause: err}
}

// InvalidError is a configuration that cannot be in force: one line for each error, with path and remedy.
type InvalidError struct {
	Lines []string
	cause error
}

func (e *InvalidError) Error() string { return strings.Join(e.Lines, "\n") }

// Unwrap returns the error of the decoder or of lb.Compile.
func (e *InvalidError) Unwrap() error { return e.cause }

// dryRunLocked says what a tree would be compiled to.
func (l *Loop) dryRunLocked(after any, answer *v1.ConfigAnswer) error {
	spec, err := specOf(after)
	if err != nil {
		return err
	}
	snapshot, err := l.compileLocked(spec, nil, l.overrides)
	if err != nil {
		return byName(err, after)
	}
	now := map[string]v1.ServiceStatus{}
	for _, service := range Describe(l.applied.Load(), l.overrides) {
		now[service.Name] = service
	}
	answer.Services = []v1.ServiceStatus{}
	for _, service := range Describe(snapshot, l.overrides) {
		if !reflect.DeepEqual(now[service.Name], service) {
			answer.Services = append(answer.Services, service)
		}
	}
	return nil
}

// change is a configuration that comes into force, and who wants it.
type change struct {
	by, action  string
	after       any
	differences []tree.Difference
	write       bool
	dropped     []string
}

// putTreeLocked brings a tree into force and, if that is wanted, into the file. The file is prepared first, so that a directory that cannot
// be written stops the change.
func (l *Loop) putTreeLocked(c change, answer *v1.ConfigAnswer) error {
	spec, err := specOf(c.after)
	if err != nil {
		return err
	}
	var text []byte
	var writing *config.Writing
	if c.write {
		if text, writing, err = l.prepareLocked(c.after); err != nil {
			return err
		}
		defer writing.Discard()
	}
	if answer.Changed {
		if err := l.putLocked(spec, nil); err != nil {
			return byName(err, c.after)
		}
	}
	l.doc.running = c.after
	if base, err := l.doc.baseTree(); err == nil && tree.Equal(base, c.after) {
		l.doc.running = nil
	}
	if writing != nil {
		if err := writing.Commit(); err != nil {
			answer.WriteError = err.Error()
		} else {
			answer.Written = true
			l.savedLocked(text, c.after)
		}
	}
	if answer.Changed {
		l.eventLocked(c)
	}
	return nil
}

// prepareLocked writes the next content of the file under another name.
func (l *Loop) prepareLocked(root any) ([]byte, *config.Writing, error) {
	if l.doc.file == nil {
		return nil, nil, ErrNoFile
	}
	text, err := tree.Rewrite(specShape(), l.doc.file.Path(), l.doc.text, root)
	if err != nil {
		return nil, nil, err
	}
	writing, err := l.doc.file.Prepare(l.doc.text, text)
	return text, writing, err
}

// savedLocked records that the file says what is in force.
func (l *Loop) savedLocked(text []byte, root any) {
	l.doc.text, l.doc.base, l.doc.running = text, root, nil
	l.revision = Revision(text)
	if _, document, err := config.Decode[lb.Spec](l.doc.name, text); err == nil {
		l.document = document
	}
}

// SaveConfig writes what is in force to the file, with its comments.
func (l *Loop) SaveConfig(by, match string) (*v1.ConfigAnswer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(match); err != nil {
		return nil, err
	}
	answer := &v1.ConfigAnswer{Differences: []v1.ConfigDifference{}}
	if l.doc.changed() {
		if err := l.putTreeLocked(change{by: by, action: "save", after: l.doc.running, write: true}, answer); err != nil {
			return nil, err
		}
		if answer.WriteError != "" {
			return nil, errors.New(answer.WriteError)
		}
	}
	return l.answeredLocked(answer), nil
}

// RevertConfig ends all run-time changes: what the file says is in force.
func (l *Loop) RevertConfig(by, match string) (*v1.ConfigAnswer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(match); err != nil {
		return nil, err
	}
	answer := &v1.ConfigAnswer{Differences: []v1.ConfigDifference{}}
	if !l.doc.changed() {
		return l.answeredLocked(answer), nil
	}
	base, err := l.doc.baseTree()
	if err != nil {
		return nil, err
	}
	differences := tree.Diff(specShape(), l.doc.running, base)
	answer.Changed = true
	answer.Differences, answer.More = shownDifferences(differences, v1.MaxConfigDifferences)
	if err := l.putTreeLocked(change{by: by, action: "revert", after: base, differences: differences}, answer); err != nil {
		return nil, err
	}
	return l.answeredLocked(answer), nil
}

// Config returns what is in force at a path. The error wraps ErrNoTarget if there is nothing.
func (l *Loop) Config(path string) (*v1.Configuration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	names, err := tree.Split(path)
	if err != nil {
		return nil, err
	}
	if l.spec == nil || l.doc.text == nil {
		return nil, fmt.Errorf("%w: there is no configuration file in force", ErrNoTarget)
	}
	root, err := l.doc.runningTree()
	if err != nil {
		return nil, err
	}
	value, err := tree.Get(specShape(), root, names)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoTarget, err)
	}
	c := &v1.Configuration{
		Generation: l.doc.events.generation, ETag: l.doc.events.etag(), Path: tree.Join(names...), Unsaved: l.doc.changed(),
		Value: tree.Clone(value), ReadOnly: l.doc.readOnly, WriteBack: l.writeBack && l.doc.file != nil,
	}
	if l.doc.file != nil {
		c.File = l.doc.file.Path()
	}
	return c, nil
}

// DiffConfig returns how what is in force differs from the file.
func (l *Loop) DiffConfig() (*v1.ConfigDiff, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &v1.ConfigDiff{Generation: l.doc.events.generation, Differences: []v1.ConfigDifference{}}
	if l.doc.file != nil {
		d.File = l.doc.file.Path()
	}
	if l.doc.changed() {
		base, err := l.doc.baseTree()
		if err != nil {
			return nil, err
		}
		d.Differences, d.More = shownDifferences(tree.Diff(specShape(), base, l.doc.running), v1.MaxConfigDifferences)
	}
	return d, nil
}

func shownDifferences(all []tree.Difference, maximum int) (shown []v1.ConfigDifference, more int) {
	shown = []v1.ConfigDifference{}
	for i, d := range all {
		if i == maximum {
			return shown, len(all) - i
		}
		shown = append(shown, v1.ConfigDifference(d))
	}
	return shown, 0
}

// matches returns a ConflictError if a condition does not hold: an etag, a generation, or * or nothing for any.
func (e *events) matches(condition string) error {
	condition = strings.Trim(strings.TrimPrefix(strings.TrimSpace(condition), "W/"), `"`)
	if condition == "" || condition == "*" || condition == e.etag() || condition == strconv.FormatUint(e.generation, 10) {
		return nil
	}
	return &ConflictError{Wanted: condition, ETag: e.etag(), Generation: e.generation}
}
