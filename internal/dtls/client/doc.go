// Package client makes and uses one DTLS session of a client: its certificates
// and keys are those of handshake.ClientConfig.
//
// Session turns datagrams into messages and back, without a socket: for callers
// that read and write in batches. Conn is a Session over a Socket, on which every
// Read and Write is one message.
//
//	conn, err := client.Dial(ctx, socket, handshake.ClientConfig{Identity: id, Key: key})
//	n, err := conn.Read(message)
//
// A handshake or session that ends says why in an Error: a server that is silent,
// one that refuses an identity, a key or a certificate, one that is not trusted,
// and a host where nothing listens are told apart.
package client
