// Package credentials reads the certificates, private keys and trusted keys of CoAP servers and clients from PEM files, for DTLS
// and TLS, and makes a demonstration chain.
//
//	loaded, err := credentials.Files{Certificate: "server.pem", PrivateKey: "server-key.pem", Trust: []string{"trust.pem"}}.Load(now)
//	… loaded.Credentials for package handshake, loaded.TLS for crypto/tls
//
// A certificate file holds the chain, the own certificate first. Without one the public half of the private key is a raw public key
// (RFC 7250). A trust file holds certificates, which are trusted to sign, and public keys ("PUBLIC KEY"), which are trusted
// themselves. Errors name the file and a remedy, and begin with the key of the configuration.
//
// Limits: files of 1 MiB; keys as in package handshake.
package credentials
