// Package handshake makes DTLS 1.2 associations (RFC 6347) as a server and as a
// client: no sockets, goroutines or clocks. Bytes and the time go in, datagrams
// and an association come out.
//
//	client                              server
//	  | ClientHello                  ->  | no state
//	  | <-  HelloVerifyRequest           | cookie = HMAC(key, address, random, session id)
//	  | ClientHello + cookie         ->  | Accepted: a Pending is made, a signature at most
//	  | <-  ServerHello, [Certificate], [ServerKeyExchange],
//	  |     [CertificateRequest], ServerHelloDone
//	  | [Certificate], ClientKeyExchange,
//	  | [CertificateVerify], CCS, Finished  ->
//	  |                                  | Pending.Receive; the certificate's chain is verified last
//	  | <-  CCS, Finished                | an Association, final flight kept
//
// Key exchanges and their proofs: pre-shared keys (RFC 4279), also with an
// ephemeral exchange (RFC 8442), and ECDHE with ECDSA or Ed25519 certificates
// (RFC 8422): X.509 chains or raw public keys (RFC 7250), of both sides; RSA
// certificates with the two suites that everybody has. Groups: P-256, P-384,
// X25519. The suites are those of package record.
//
// Sessions are resumed by id (RFC 5246 section 7.3) on their own node, and by
// ticket (RFC 5077) on every node with the same ticket secret: Resumption.
// There the server sends its Finished first, and a client's last flight is
// Result.Final, which its owner repeats when the server repeats its own.
//
// Extensions: extended master secret (RFC 7627), renegotiation_info (RFC 5746),
// connection_id (RFC 9146), rrc (RFC 9853), server_name and max_fragment_length
// (RFC 6066), record_size_limit (RFC 8449), certificate types (RFC 7250),
// session_ticket (RFC 5077).
//
// Messages come in fragments of any size and in any order, up to MaxMessage
// bytes each; our own flights are cut to Config.MTU. Chains have at most
// MaxChain certificates.
//
// There is no renegotiation, and there are no CBC suites (ADR 0016).
package handshake
