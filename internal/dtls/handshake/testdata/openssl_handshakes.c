// Makes DTLS 1.2 handshakes with OpenSSL, both sides in one thread over a pair of datagram sockets, and prints the processor time of a
// handshake in nanoseconds: of the server's calls, and of both sides. BenchmarkHandshakes builds and runs it.
//
//	openssl_handshakes COUNT CIPHERS psk|x509|mutual full|resumed [CHAIN KEY DEVICE_CHAIN DEVICE_KEY ROOT]

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what) {
	fprintf(stderr, "%s\n", what);
	ERR_print_errors_fp(stderr);
	exit(1);
}

static long long cpu(void) {
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static const char key[] = ".fornium";

static unsigned client_key(SSL *ssl, const char *hint, char *identity, unsigned identity_size, unsigned char *psk, unsigned size) {
	snprintf(identity, identity_size, "device");
	memcpy(psk, key, sizeof key - 1);
	return sizeof key - 1;
}

static unsigned server_key(SSL *ssl, const char *identity, unsigned char *psk, unsigned size) {
	memcpy(psk, key, sizeof key - 1);
	return sizeof key - 1;
}

// The cookie is constant: both libraries make a MAC of some hundred bytes for it, which this leaves out in favour of OpenSSL.
static int make_cookie(SSL *ssl, unsigned char *cookie, unsigned *length) {
	memset(cookie, 7, 16);
	*length = 16;
	return 1;
}

static int check_cookie(SSL *ssl, const unsigned char *cookie, unsigned length) { return length == 16 && cookie[0] == 7; }

static SSL_CTX *context(const SSL_METHOD *method, const char *ciphers, const char *chain, const char *private_key, const char *root) {
	SSL_CTX *ctx = SSL_CTX_new(method);
	if (ctx == NULL || !SSL_CTX_set_cipher_list(ctx, ciphers) || !SSL_CTX_set1_groups_list(ctx, "P-256"))
		fail("context");
	if (chain != NULL && (SSL_CTX_use_certificate_chain_file(ctx, chain) != 1 || SSL_CTX_use_PrivateKey_file(ctx, private_key, SSL_FILETYPE_PEM) != 1))
		fail(chain);
	if (root != NULL && SSL_CTX_load_verify_file(ctx, root) != 1)
		fail(root);
	return ctx;
}

static SSL *end(SSL_CTX *ctx, int fd) {
	SSL *ssl = SSL_new(ctx);
	BIO *bio = BIO_new_dgram(fd, BIO_NOCLOSE);
	BIO_ADDR *none = BIO_ADDR_new();
	if (ssl == NULL || bio == NULL || none == NULL)
		fail("connection");
	BIO_ctrl(bio, BIO_CTRL_DGRAM_SET_CONNECTED, 0, none); // not NULL: write without an address
	BIO_ADDR_free(none);
	SSL_set_bio(ssl, bio, bio);
	SSL_set_options(ssl, SSL_OP_NO_QUERY_MTU);
	SSL_set_mtu(ssl, 1280);
	return ssl;
}

static int step(SSL *ssl) {
	int r = SSL_do_handshake(ssl);
	if (r == 1)
		return 1;
	if (SSL_get_error(ssl, r) != SSL_ERROR_WANT_READ)
		fail("handshake");
	return 0;
}

int main(int argc, char **argv) {
	if (argc != 5 && argc != 10)
		fail("usage: openssl_handshakes COUNT CIPHERS psk|x509|mutual full|resumed [CHAIN KEY DEVICE_CHAIN DEVICE_KEY ROOT]");
	int count = atoi(argv[1]), certificates = argc == 10, mutual = !strcmp(argv[3], "mutual"), resumed = !strcmp(argv[4], "resumed");
	SSL_CTX *server = context(DTLS_server_method(), argv[2], certificates ? argv[5] : NULL, certificates ? argv[6] : NULL, mutual ? argv[9] : NULL);
	SSL_CTX *client = context(DTLS_client_method(), argv[2], mutual ? argv[7] : NULL, mutual ? argv[8] : NULL, certificates ? argv[9] : NULL);
	SSL_CTX_set_options(server, SSL_OP_COOKIE_EXCHANGE);
	SSL_CTX_set_cookie_generate_cb(server, make_cookie);
	SSL_CTX_set_cookie_verify_cb(server, check_cookie);
	SSL_CTX_set_session_id_context(server, (const unsigned char *)"bench", 5);
	if (!resumed)
		SSL_CTX_set_session_cache_mode(server, SSL_SESS_CACHE_OFF);
	if (!certificates) {
		SSL_CTX_set_psk_server_callback(server, server_key);
		SSL_CTX_set_psk_client_callback(client, client_key);
	} else {
		SSL_CTX_set_verify(client, SSL_VERIFY_PEER, NULL);
		if (mutual)
			SSL_CTX_set_verify(server, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
	}
	SSL_SESSION *session = NULL;
	long long spent = 0, start = 0;
	for (int i = resumed ? -1 : 0; i < count; i++) {
		int fds[2];
		if (i == 0) {
			spent = 0;
			start = cpu();
		}
		if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, fds) != 0)
			fail("socketpair");
		SSL *c = end(client, fds[0]), *s = end(server, fds[1]);
		SSL_set_connect_state(c);
		SSL_set_accept_state(s);
		if (session != NULL)
			SSL_set_session(c, session);
		for (int clientDone = 0, serverDone = 0, rounds = 0; !clientDone || !serverDone; rounds++) {
			if (rounds > 20)
				fail("the handshake does not end");
			clientDone = clientDone || step(c);
			long long begin = cpu();
			serverDone = serverDone || step(s);
			spent += cpu() - begin;
		}
		if (resumed && session == NULL)
			session = SSL_get1_session(c);
		else if (SSL_session_reused(c) != resumed)
			fail("resumption");
		SSL_set_quiet_shutdown(c, 1); // without a shutdown OpenSSL would not resume the session
		SSL_set_quiet_shutdown(s, 1);
		SSL_shutdown(c);
		SSL_shutdown(s);
		SSL_free(c);
		SSL_free(s);
		close(fds[0]);
		close(fds[1]);
	}
	printf("%lld %lld\n", spent / count, (cpu() - start) / count);
	return 0;
}
