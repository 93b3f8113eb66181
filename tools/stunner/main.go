// Command stunner runs STUNner's own client or service of config discovery, so that tests can hold Weir's to them.
//
//	stunner get ADDRESS NAMESPACE/NAME NODE      one configuration, as JSON
//	stunner list ADDRESS                         all of them, one a line, and the license status
//	stunner watch ADDRESS NAMESPACE/NAME NODE    each configuration that arrives, one a line
//	stunner serve ADDRESS NODE-ADDRESS           a service; lines of its input are NAMESPACE/NAME JSON, or NAMESPACE/NAME to delete one
//
// This module is not a part of Weir: it brings STUNner and Kubernetes' client with it. .ci/deps builds it, and stunnerd, once.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/go-logr/logr"
	stnrv1 "github.com/l7mp/stunner/pkg/apis/v1"
	"github.com/l7mp/stunner/pkg/config/client"
	"github.com/l7mp/stunner/pkg/config/server"
	"github.com/l7mp/stunner/pkg/logger"
)

func main() {
	log := logger.NewLoggerFactory("all:INFO")
	ctx := context.Background()
	switch os.Args[1] {
	case "get", "watch":
		c, err := client.NewCDSClient(os.Args[2], os.Args[3], os.Args[4], log.NewLogger("peer"))
		check(err)
		if os.Args[1] == "get" {
			conf, err := c.Load()
			check(err)
			print(conf)
			return
		}
		ch := make(chan *stnrv1.StunnerConfig, 16)
		check(c.Watch(ctx, ch, false))
		for conf := range ch {
			if client.IsConfigDeleted(conf) {
				fmt.Println("deleted")
				continue
			}
			print(conf)
		}
	case "list":
		api, err := client.NewAllConfigsAPI(os.Args[2], log.NewLogger("peer"))
		check(err)
		all, err := api.Get(ctx)
		check(err)
		for _, c := range all {
			print(c)
		}
		lic, err := client.NewLicenseStatusClient(os.Args[2], log.NewLogger("peer"))
		check(err)
		s, err := lic.LicenseStatus(ctx)
		check(err)
		fmt.Println("license", s)
	case "serve":
		s := server.New(os.Args[2], func(c *stnrv1.StunnerConfig, node string) *stnrv1.StunnerConfig {
			for i := range c.Listeners {
				if c.Listeners[i].Addr == stnrv1.DefaultNodeAddressPlaceholder {
					c.Listeners[i].Addr = os.Args[3]
				}
			}
			return c
		}, logr.Discard())
		check(s.Start(ctx))
		fmt.Println("serving")
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			id, text, ok := strings.Cut(in.Text(), " ")
			if !ok {
				s.DeleteConfig(id)
				fmt.Println("deleted", id)
				continue
			}
			conf := &stnrv1.StunnerConfig{}
			check(json.Unmarshal([]byte(text), conf))
			check(conf.Validate())
			s.UpsertConfig(id, conf)
			fmt.Println("set", id)
		}
		select {}
	}
}

func print(c *stnrv1.StunnerConfig) {
	text, err := json.Marshal(c)
	check(err)
	fmt.Println(string(text))
}

func check(err error) {
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}
