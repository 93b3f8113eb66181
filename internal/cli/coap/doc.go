// Package coap is weir coap: CoAP over UDP and DTLS, as a server, as a client and as a load.
package coap
