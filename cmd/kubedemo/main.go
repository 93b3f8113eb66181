// Command kubedemo is `make kube-demo`: Weir in a Kubernetes on this machine, with its Pods replaced while traffic goes on.
//
// It is no part of weir: it needs the repository's charts, and the control plane that .ci/deps builds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/weir-lb/weir/internal/bench/kubedemo"
	"github.com/weir-lb/weir/internal/testbed/netlab"
	"github.com/weir-lb/weir/internal/testbed/procstat"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "kube-demo:", err)
		stop()
		os.Exit(1)
	}
}

// run runs a command line. An interrupt ends it, after all that it started.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 4 && args[0] == "clients" {
		return clients(ctx, args[1:], out)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cfg := kubedemo.Config{Self: self, Out: out}
	flags := flag.NewFlagSet("kube-demo", flag.ContinueOnError)
	flags.StringVar(&cfg.Weir, "weir", "bin/weir", "the program that Pods run")
	flags.StringVar(&cfg.Deploy, "deploy", "bin/deploy", "the program of tools/deploy")
	flags.StringVar(&cfg.Root, "root", ".", "directory of the repository")
	flags.IntVar(&cfg.Clients, "clients", 50, "DTLS clients, and as many TURN allocations")
	flags.DurationVar(&cfg.Calm, "calm", 2*time.Second, "between two events")
	page := flags.String("report", "", "file of the page with plots")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if cfg.Clients < 1 || cfg.Clients > 1000 {
		return fmt.Errorf("-clients %d: give 1 to 1000", cfg.Clients)
	}
	if err := netlab.Privileged(); err != nil {
		return fmt.Errorf("it makes network namespaces and loads programs into the kernel, for which it has to be root: %w", err)
	}
	load := procstat.LoadAverage()
	result, err := kubedemo.Run(ctx, cfg)
	if err != nil {
		return err
	}
	method := fmt.Sprintf("make kube-demo, %d clients of each kind, %.0f s of traffic after %.0f s of preparation\nload average: %s before, %s after\n%s/%s, %d cores, %s",
		cfg.Clients, result.Seconds, result.Prepared, load, procstat.LoadAverage(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	if err := errors.Join(result.WriteText(out), write(*page, result, method)); err != nil {
		return err
	}
	if *page != "" {
		fmt.Fprintln(out, "  report: "+*page)
	}
	if !result.OK {
		return errors.New("something was lost")
	}
	return nil
}

func write(path string, result *kubedemo.Result, method string) error {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(result.WriteHTML(file, method), file.Close())
}

// clients is the process of the DTLS clients.
func clients(ctx context.Context, args []string, out io.Writer) error {
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	interval, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	return kubedemo.Clients(ctx, out, args[0], count, interval)
}
