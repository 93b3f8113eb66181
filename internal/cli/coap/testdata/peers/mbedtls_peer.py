"""A DTLS peer on mbedTLS that a test drives.

Arguments: client|server address port, and pairs of name=value: suites (mbedTLS's names, by commas), identity and secret of a
pre-shared key, or certificate, key, root (PEM files) and name, of the server. The client sends the datagrams that it reads from its
standard input, in hex, one a line, and prints the one that comes for each. The server answers each CoAP request with 2.05 and the
name of the cipher suite. Both print READY, the client as soon as its session is made, and run until their standard input ends."""

import os
import socket
import sys
import threading

from mbedtls import pk, tls, x509


def configuration(role, o):
    c = {"ciphers": tuple(o["suites"].split(",")), "validate_certificates": False,
         "lowest_supported_version": tls.DTLSVersion.DTLSv1_2}
    if "identity" in o:
        c["pre_shared_key"] = (o["identity"], o["secret"].encode())
        if role == "server":
            c = {**c, "pre_shared_key": None, "pre_shared_key_store": {o["identity"]: o["secret"].encode()}}
    if "certificate" in o:
        with open(o["key"]) as file:
            key = pk.ECC.from_buffer(file.read().encode())
        chain = [x509.CRT.from_PEM(text + "-----END CERTIFICATE-----\n")
                 for text in open(o["certificate"]).read().split("-----END CERTIFICATE-----")[:-1]]
        c["certificate_chain"] = (tuple(chain), key)
        c["trust_store"] = tls.TrustStore.from_pem_file(o["root"])
        c["validate_certificates"] = True
    return tls.DTLSConfiguration(**c)


def client(conf, address, o):
    s = tls.ClientContext(conf).wrap_socket(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), o.get("name"))
    s.connect(address)
    s.settimeout(20)
    s.do_handshake()
    print("READY", flush=True)
    for line in sys.stdin:
        s.send(bytes.fromhex(line))
        print(s.recv(4096).hex(), flush=True)


def session(context, s, cookie):
    s.setcookieparam(cookie)
    try:
        s.do_handshake()
    except tls.HelloVerifyRequest:
        s = context.wrap_socket(s._socket)
        s.setcookieparam(cookie)
        s.do_handshake()
    while True:
        request = s.recv(4096)
        if len(request) >= 4:
            end = 4 + (request[0] & 15)
            s.send(bytes([request[0] & 0xCF | 0x20, 0x45]) + request[2:end] + b"\xff" + s.cipher().encode())


def server(conf, address, o):
    context = tls.ServerContext(conf)
    listener = context.wrap_socket(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # accept leaves the socket to the client and binds another one
    listener.bind(address)
    print("READY", flush=True)
    while True:
        s, peer = listener.accept()
        threading.Thread(target=session, args=(context, s, str(peer).encode()), daemon=True).start()


def until_end():
    sys.stdin.read()
    os._exit(0)


def refused(error):
    """A session that fails ends alone and says so."""
    print("ALERT", error.exc_value, flush=True)


def main():
    threading.excepthook = refused
    role, host, port = sys.argv[1:4]
    options = dict(a.split("=", 1) for a in sys.argv[4:])
    if role == "server":
        threading.Thread(target=until_end, daemon=True).start()
    {"client": client, "server": server}[role](configuration(role, options), (host, int(port)), options)


main()
