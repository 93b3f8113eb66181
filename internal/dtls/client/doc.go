// Package client makes and uses one DTLS session of a client: its certificates
// and keys are those of handshake.ClientConfig.
//
// Session turns datagrams into messages and back, without a socket: for callers
// that read and write in batches. Conn is a Session with a connected UDP socket,
// as a net.Conn on which every Read and Write is one record.
package client
