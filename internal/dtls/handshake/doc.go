// Package handshake makes DTLS 1.2 associations with pre-shared keys (RFC
// 4279) as a server and as a client: no sockets, goroutines or clocks. Bytes
// and the time go in, datagrams and an association come out.
//
//	client                              server
//	  | ClientHello                  ->  | no state
//	  | <-  HelloVerifyRequest           | cookie = HMAC(key, address, hello)
//	  | ClientHello + cookie         ->  | Accept: a Pending is made
//	  | <-  ServerHello, ServerHelloDone |
//	  | ClientKeyExchange, CCS, Finished>| Pending.Receive
//	  | <-  CCS, Finished                | an Association, final flight kept
//
// Suites: TLS_PSK_WITH_AES_128_CCM_8, _CCM (RFC 6655), _GCM_SHA256 (RFC 5487).
// Extensions: extended master secret (RFC 7627), renegotiation_info (RFC
// 5746), connection_id (RFC 9146), rrc (RFC 9853).
package handshake
