// Command deploy makes what Weir is deployed with: container images without Docker, Debian and RPM packages, and manifests of the Helm chart.
//
// It is a module of its own, so that Weir's has none of Helm's and nfpm's modules.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "deploy:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("write image, package, sbom, render or lint")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	switch args[0] {
	case "image":
		binaries, out, tag := flags.String("binaries", "", "ARCHITECTURE=FILE,... of weir"), flags.String("o", "weir.tar", "OCI archive that is written"), flags.String("tag", "weir:latest", "name of the image")
		licences, err := parse(flags, args)
		if err != nil {
			return err
		}
		return writeImage(*out, *tag, strings.Split(*binaries, ","), licences)
	case "package":
		p := packaging{}
		epoch := flags.Int64("epoch", 0, "SOURCE_DATE_EPOCH: time of all files, seconds since 1970")
		flags.StringVar(&p.binary, "binary", "", "file of weir")
		flags.StringVar(&p.architecture, "architecture", "amd64", "of the binary")
		flags.StringVar(&p.source, "source", ".", "directory of the repository")
		flags.StringVar(&p.share, "share", "", "directory of what goes to /usr/share besides")
		flags.StringVar(&p.version, "version", "", "of the packages (default: the binary's)")
		flags.StringVar(&p.out, "o", ".", "directory that is written to")
		flags.StringVar(&p.formats, "formats", "deb,rpm", "of the packages")
		flags.StringVar(&p.compression, "compression", "zstd", "of the packages; deb also none")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		p.time = time.Unix(*epoch, 0).UTC()
		return p.write()
	case "sbom":
		binary, architecture := flags.String("binary", "", "file of weir"), flags.String("architecture", "amd64", "of the binary")
		licences, err := parse(flags, args)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(*binary)
		if err != nil {
			return err
		}
		return writeDocument(os.Stdout, content, *architecture, licences)
	case "render", "lint":
		chart, values, name, namespace := flags.String("chart", "", "directory of the chart"), flags.String("values", "", "file of values"), flags.String("name", "coap", "release"), flags.String("namespace", "coap", "namespace")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if args[0] == "lint" {
			return lintChart(*chart, *values, *namespace)
		}
		text, err := renderChart(*chart, *values, *name, *namespace)
		if err == nil {
			_, err = os.Stdout.WriteString(text)
		}
		return err
	}
	return fmt.Errorf("%s: write image, package, sbom, render or lint", args[0])
}

// parse parses the flags of a command that writes bills of materials, and reads the licences for them.
func parse(flags *flag.FlagSet, args []string) (licences, error) {
	file := flags.String("licences", "", "what .ci/licences -spdx has written (default: no licence is asserted)")
	if err := flags.Parse(args[1:]); err != nil {
		return nil, err
	}
	return readLicences(*file)
}
