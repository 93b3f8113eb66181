/*
 * A DTLS peer on tinydtls that a test drives:
 *
 *   tinydtls-peer client|server psk ADDRESS PORT IDENTITY SECRET
 *   tinydtls-peer client|server rpk ADDRESS PORT OWN PEER
 *
 * OWN is a P-256 key in hex: the private one, x and y; PEER the x and y to accept. The client sends the datagrams that it reads from its
 * standard input, in hex, one a line, and prints those that come. The server answers each CoAP request with 2.05 and the text
 * "tinydtls". Both print READY, the client as soon as its session is made, and run until their standard input ends.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tinydtls.h"
#include "dtls.h"
#include "dtls_debug.h"

static int sock, server;
static const char *identity, *secret;
static unsigned char own[96], peer[64];

static size_t unhex(const char *text, unsigned char *out, size_t room)
{
	size_t n = 0;
	unsigned int b;

	while (n < room && sscanf(text + 2 * n, "%2x", &b) == 1)
		out[n++] = (unsigned char)b;
	return n;
}

static int on_write(dtls_context_t *ctx, session_t *to, uint8 *buf, size_t len)
{
	(void)ctx;
	return (int)sendto(sock, buf, len, MSG_DONTWAIT, &to->addr.sa, to->size);
}

static int on_read(dtls_context_t *ctx, session_t *from, uint8 *buf, size_t len)
{
	unsigned char reply[64];
	size_t token = buf[0] & 15;

	if (!server) {
		for (size_t i = 0; i < len; i++)
			printf("%02x", buf[i]);
		printf("\n");
		return 0;
	}
	if (len < 4 + token || token > 8)
		return 0;
	memcpy(reply, buf, 4 + token);
	reply[0] = (unsigned char)((buf[0] & 0xcf) | 0x20); /* an acknowledgement */
	reply[1] = 0x45;
	memcpy(reply + 4 + token, "\xfftinydtls", 9);
	dtls_write(ctx, from, reply, 13 + token);
	return 0;
}

static int on_event(dtls_context_t *ctx, session_t *session, dtls_alert_level_t level, unsigned short code)
{
	(void)ctx, (void)session;
	if (!server && code == DTLS_EVENT_CONNECTED)
		printf("READY\n");
	else if (level == DTLS_ALERT_LEVEL_FATAL)
		printf("ALERT %d\n", code);
	return 0;
}

static int on_psk(dtls_context_t *ctx, const session_t *session, dtls_credentials_type_t type, const unsigned char *desc, size_t desc_len,
		  unsigned char *result, size_t room)
{
	const char *text = type == DTLS_PSK_KEY ? secret : type == DTLS_PSK_IDENTITY ? identity : "";

	(void)ctx, (void)session;
	if (server && type == DTLS_PSK_KEY && (desc_len != strlen(identity) || memcmp(desc, identity, desc_len)))
		return dtls_alert_fatal_create(DTLS_ALERT_DECRYPT_ERROR);
	if (strlen(text) > room)
		return dtls_alert_fatal_create(DTLS_ALERT_INTERNAL_ERROR);
	memcpy(result, text, strlen(text));
	return (int)strlen(text);
}

static int on_key(dtls_context_t *ctx, const session_t *session, const dtls_ecdsa_key_t **result)
{
	static dtls_ecdsa_key_t key = {DTLS_ECDH_CURVE_SECP256R1, own, own + 32, own + 64};

	(void)ctx, (void)session;
	*result = &key;
	return 0;
}

static int on_verify(dtls_context_t *ctx, const session_t *session, const unsigned char *x, const unsigned char *y, size_t size)
{
	(void)ctx, (void)session;
	if (size != 32 || memcmp(x, peer, 32) || memcmp(y, peer + 32, 32))
		return dtls_alert_fatal_create(DTLS_ALERT_CERTIFICATE_UNKNOWN);
	return 0;
}

int main(int argc, char **argv)
{
	dtls_handler_t handler = {.write = on_write, .read = on_read, .event = on_event};
	struct sockaddr_in address = {.sin_family = AF_INET};
	session_t other;
	dtls_context_t *ctx;
	static char line[4096];
	unsigned char buf[2048];

	if (argc != 7)
		return 2;
	server = !strcmp(argv[1], "server");
	if (!strcmp(argv[2], "psk")) {
		identity = argv[5], secret = argv[6];
		handler.get_psk_info = on_psk;
	} else {
		if (unhex(argv[5], own, sizeof(own)) != sizeof(own) || unhex(argv[6], peer, sizeof(peer)) != sizeof(peer))
			return 2;
		handler.get_ecdsa_key = on_key, handler.verify_ecdsa_key = on_verify;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	address.sin_port = htons((unsigned short)atoi(argv[4]));
	sock = socket(AF_INET, SOCK_DGRAM, 0);
	if (inet_pton(AF_INET, argv[3], &address.sin_addr) != 1 || (server && bind(sock, (struct sockaddr *)&address, sizeof(address))))
		return 1;
	dtls_init();
	dtls_set_log_level(DTLS_LOG_EMERG);
	ctx = dtls_new_context(NULL);
	dtls_set_handler(ctx, &handler);
	dtls_session_init(&other);
	other.size = sizeof(address);
	memcpy(&other.addr.sin, &address, sizeof(address));
	if (server)
		printf("READY\n");
	else
		dtls_connect(ctx, &other);
	for (;;) {
		struct pollfd in[2] = {{.fd = sock, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
		ssize_t n;

		poll(in, 2, 100);
		dtls_check_retransmit(ctx, NULL);
		if (in[0].revents) {
			session_t from;

			dtls_session_init(&from);
			n = recvfrom(sock, buf, sizeof(buf), 0, &from.addr.sa, &from.size);
			if (n > 0)
				dtls_handle_message(ctx, &from, buf, (int)n);
		}
		if (in[1].revents) {
			n = read(0, line, sizeof(line) - 1); /* the test writes whole lines and waits for the answer */
			if (n <= 0)
				break;
			line[n] = 0;
			dtls_write(ctx, &other, buf, unhex(line, buf, sizeof(buf)));
		}
	}
	dtls_free_context(ctx);
	return 0;
}
