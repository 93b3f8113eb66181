// Package client is a client of Weir's admin API: it reads the status and flows of a running part, drains backends, follows a trace
// and moves the allocations of a TURN gateway. The answers are the types of package v1.
//
//	balancer := client.New("unix:/run/weir/lb.sock", "", "lb")
//	status, err := balancer.LBStatus(ctx)
//
// An address is unix:/path or HOST:PORT. The Unix socket needs no token: only its owner can open it. HOST:PORT needs the token that
// the part was started with (--admin-token-file); it is sent in clear text, so use it over networks that you trust.
//
// Every method takes a context. It ends after 30 s at the latest, except streams, and reads at most 250 MiB. A refusal of the server
// is an [Error] with the HTTP status and the server's text; other errors say that no program answered, or not the part that was expected.
package client
