package main

import "github.com/spf13/cobra"

func newLBTraceCommand() *cobra.Command { return &cobra.Command{Use: "trace"} }
