package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newManCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIRECTORY",
		Short: "Write a manual page for each command",
		Long: `Write a manual page (section 1, in roff) for each command to DIRECTORY, which is made if it is missing. They say what --help
says. 'make install' puts them where man looks for them.`,
		Example: `  weir man ~/.local/share/man/man1 && man weir-lb-run
  weir man /tmp/man && man -l /tmp/man/weir-lb-run.1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			count := 0
			for _, one := range documented(cmd.Root()) {
				if err := os.WriteFile(filepath.Join(args[0], manName(one)+".1"), manPage(one), 0o644); err != nil { //nolint:gosec // for everybody to read
					return err
				}
				count++
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "wrote %d manual pages to %s\n", count, args[0])
			return err
		},
	}
}

// documented are the commands that users see, each before those below it.
func documented(cmd *cobra.Command) []*cobra.Command {
	if cmd.Hidden || cmd.Name() == "help" {
		return nil
	}
	all := []*cobra.Command{cmd}
	for _, below := range cmd.Commands() {
		all = append(all, documented(below)...)
	}
	return all
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is the page of one command in roff, for the macros of groff_man(7) and mandoc.
func manPage(cmd *cobra.Command) []byte {
	cmd.InitDefaultHelpFlag()
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 1 \"\" Weir \"Weir manual\"\n.nh\n.ad l\n", strings.ToUpper(roff(manName(cmd))))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(manName(cmd)), roff(cmd.Short))
	b.WriteString(".SH SYNOPSIS\n")
	path := cmd.CommandPath()
	fmt.Fprintf(&b, ".B %s\n%s\n", roff(path), roff(strings.TrimSpace(strings.TrimPrefix(cmd.UseLine(), path))))
	b.WriteString(".SH DESCRIPTION\n")
	manText(&b, orShort(cmd))
	manOptions(&b, cmd)
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n")
		manLiteral(&b, strings.Split(strings.Trim(cmd.Example, "\n"), "\n"))
	}
	if also := manAlso(cmd); len(also) > 0 {
		fmt.Fprintf(&b, ".SH SEE ALSO\n%s\n", strings.Join(also, ",\n"))
	}
	return b.Bytes()
}

func orShort(cmd *cobra.Command) string {
	if cmd.Long != "" {
		return cmd.Long
	}
	return cmd.Short + "."
}

// manText writes paragraphs. Indented lines stay as they are.
func manText(b *bytes.Buffer, text string) {
	for _, paragraph := range regexp.MustCompile(`\n[ \t]*\n`).Split(strings.Trim(text, "\n"), -1) {
		b.WriteString(".PP\n")
		lines := strings.Split(paragraph, "\n")
		for len(lines) > 0 {
			n := slices.IndexFunc(lines, func(line string) bool { return indented(line) != indented(lines[0]) })
			if n < 0 {
				n = len(lines)
			}
			if indented(lines[0]) {
				manLiteral(b, lines[:n])
			} else {
				b.WriteString(roff(strings.Join(lines[:n], "\n")) + "\n")
			}
			lines = lines[n:]
		}
	}
}

func indented(line string) bool {
	return strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "\t")
}

// manLiteral writes lines that are not filled.
func manLiteral(b *bytes.Buffer, lines []string) {
	b.WriteString(".RS 2\n.nf\n")
	for _, line := range lines {
		b.WriteString(roff(strings.TrimPrefix(strings.TrimPrefix(line, "  "), "\t")) + "\n")
	}
	b.WriteString(".fi\n.RE\n")
}

func manOptions(b *bytes.Buffer, cmd *cobra.Command) {
	title := ".SH OPTIONS\n"
	cmd.NonInheritedFlags().VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden || flag.Deprecated != "" {
			return
		}
		b.WriteString(title + ".TP\n")
		title = ""
		if flag.Shorthand != "" && flag.ShorthandDeprecated == "" {
			fmt.Fprintf(b, "\\fB%s\\fR, ", roff("-"+flag.Shorthand))
		}
		kind, usage := pflag.UnquoteUsage(flag)
		fmt.Fprintf(b, "\\fB%s\\fR", roff("--"+flag.Name))
		if kind != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(kind))
		}
		b.WriteString("\n" + roff(usage))
		if value := strings.Trim(flag.DefValue, "[]"); !slices.Contains([]string{"", "0", "false"}, value) {
			b.WriteString(roff(" (default " + value + ")"))
		}
		b.WriteString("\n")
	})
}

func manAlso(cmd *cobra.Command) (also []string) {
	reference := func(cmd *cobra.Command) string { return "\\fB" + roff(manName(cmd)) + "\\fR(1)" }
	if cmd.HasParent() {
		also = append(also, reference(cmd.Parent()))
	}
	for _, below := range cmd.Commands() {
		if len(documented(below)) > 0 {
			also = append(also, reference(below))
		}
	}
	return also
}

// roff escapes text: what stands at a prompt can be copied from the page.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
