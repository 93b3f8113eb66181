package measuring

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

const ReportUsage = "also write an HTML report with plots to this file"

// AddReportFlag adds --report. A file that could not be written is refused while the flags are read, before any work:
// who requests a report of a quarter of an hour learns of the missing directory now. The file is left as it is.
func AddReportFlag(cmd *cobra.Command, name *string, usage string) {
	cmd.Flags().Var(ReportFile{name}, "report", usage)
}

// ReportFile is the value of --report.
type ReportFile struct{ name *string }

func (f ReportFile) String() string {
	if f.name == nil { // pflag queries a zero value for the default
		return ""
	}
	return *f.name
}

func (f ReportFile) Type() string { return "file" }

func (f ReportFile) Set(name string) error {
	if err := Replaceable(name); err != nil {
		return err
	}
	*f.name = name
	return nil
}

// Replaceable says why replaceFile could not write name, and what would help; nil where it could, or for no name.
func Replaceable(name string) error {
	if name == "" {
		return nil
	}
	if name == "-" {
		return errors.New("standard output has the result; name a file")
	}
	name, info, err := existing(name)
	switch {
	case err != nil:
		return err
	case info != nil && info.IsDir():
		return errors.New("is a directory; name a file in it")
	case info != nil:
		if err := unix.Faccessat(unix.AT_FDCWD, name, unix.W_OK, unix.AT_EACCESS); err != nil {
			return fmt.Errorf("may not be written (%w); name another file, or remove that one", err)
		}
		if !info.Mode().IsRegular() {
			return nil
		}
	}
	directory := filepath.Dir(name)
	probe, err := os.CreateTemp(directory, filepath.Base(name)+".*")
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no directory %s; create it, or name a file elsewhere", directory)
	}
	if err != nil {
		return fmt.Errorf("no file can be made in %s (%w); name one elsewhere", directory, errors.Unwrap(err))
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// existing follows links to the file that name means, which need not be there yet: info is nil then.
func existing(name string) (string, fs.FileInfo, error) {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return name, nil, nil
	}
	if err != nil {
		return name, nil, fmt.Errorf("cannot be looked at (%w); name another file", errors.Unwrap(err))
	}
	return name, info, nil
}

// replaceFile writes a file as a whole: a reader never sees half of it. A device or a pipe, such as /dev/stderr, is
// written to as it is.
func replaceFile(name string, write func(io.Writer) error) error {
	name, info, err := existing(name)
	if err != nil {
		return err
	}
	if info != nil && !info.Mode().IsRegular() {
		file, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(file), file.Close())
	}
	file, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // gone once renamed
	if err := errors.Join(write(file), file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), name)
}

// WriteReport is replaceFile for what --report names, and nothing without it.
func WriteReport(name string, write func(io.Writer) error) error {
	if name == "" {
		return nil
	}
	if err := replaceFile(name, write); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// TypedCommand is the command line, quoted where a shell wants it.
func TypedCommand() string {
	words := []string{"weir"}
	for _, arg := range os.Args[1:] {
		if arg == "" || strings.ContainsFunc(arg, func(r rune) bool { return !strings.ContainsRune(plainLetters, r) }) {
			arg = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}

const plainLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,=%+@"
