package bench

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-lb/weir/internal/bench"
	"github.com/weir-lb/weir/internal/cli"
	"github.com/weir-lb/weir/internal/coap/client"
)

// newBenchTrafficHandshakesCommand is the new clients of `weir bench run floods`.
func newBenchTrafficHandshakesCommand() *cobra.Command {
	var (
		rate              float64
		duration, timeout time.Duration
	)
	cmd := &cobra.Command{
		Use: "handshakes URI", Short: "Begin DTLS sessions at a rate, each with one request, and count those that succeed", Hidden: true,
		Example: `  weir bench traffic handshakes coaps://127.0.0.1:5784/ --rate 10 --duration 10s`,
		Args:    cli.OneURI,
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := client.ParseTarget(args[0]); err != nil || rate <= 0 || duration <= 0 || timeout <= 0 {
				return cli.UsageError(fmt.Errorf("%s at %g/s for %v within %v: want a URI and numbers above 0 (%w)", args[0], rate, duration, timeout, err))
			}
			var (
				mu      sync.Mutex
				result  bench.Handshakes
				running sync.WaitGroup
			)
			ctx := cmd.Context()
			begin := time.Now()
			for n := 0; ; n++ {
				due := begin.Add(time.Duration(float64(n) / rate * float64(time.Second)))
				if due.Sub(begin) >= duration {
					break
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Until(due)):
				}
				if ctx.Err() != nil {
					break
				}
				running.Go(func() {
					_, err := client.Do(ctx, client.RequestConfig{URI: args[0], Timeout: timeout})
					mu.Lock()
					defer mu.Unlock()
					result.All++
					if late := time.Since(due); err == nil && late <= timeout {
						result.OK++
					} else if result.Why == "" {
						result.Why = fmt.Sprintf("%v late: %v", late.Round(time.Millisecond), err)
					}
				})
			}
			running.Wait()
			return json.NewEncoder(cmd.OutOrStdout()).Encode(result)
		},
	}
	cmd.Flags().Float64Var(&rate, "rate", 10, "a second")
	cli.DurationVar(cmd.Flags(), &duration, "duration", time.Second, "how long")
	cli.DurationVar(cmd.Flags(), &timeout, "timeout", 5*time.Second, "from the intended time to the response")
	return cmd
}
