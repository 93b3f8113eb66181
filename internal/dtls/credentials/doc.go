// Package credentials reads the certificates, private keys and trusted keys of servers and clients from PEM files, for DTLS and TLS,
// and makes a demonstration chain.
//
//	files := credentials.Files{Chain: "server.pem", Key: "server-key.pem", Trust: []string{"trust.pem"}}
//	loaded, err := files.Load(now) // for package handshake; Certificate.TLS is the form for crypto/tls
//
// What a file may hold, by the type of its PEM blocks:
//
//	CERTIFICATE                                    of a chain, or trusted to sign
//	PRIVATE KEY, EC PRIVATE KEY, RSA PRIVATE KEY   of a chain, or of a raw public key (RFC 7250)
//	PUBLIC KEY                                     a raw public key that is trusted itself
//
// Errors name the file, the line of a block, and the remedy, never a key; for a server they begin with the key of the configuration.
// Files have at most 1 MiB.
package credentials
