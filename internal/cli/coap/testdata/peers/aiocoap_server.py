"""An aiocoap server over UDP, TCP and, at the port behind it, DTLS (tinydtls) and TLS, for Weir's client: /large answers 3,000 bytes
and takes what is put, /obs changes five times a second, /slow answers separately.

Arguments: address port certificate key. Prints READY; runs until its standard input ends."""

import asyncio
import ssl
import sys

import aiocoap
from aiocoap import resource
from aiocoap.credentials import CredentialsMap


class Large(resource.Resource):
    body = b"x" * 3000

    async def render_get(self, request):
        return aiocoap.Message(payload=self.body, content_format=0)

    async def render_put(self, request):
        self.body = request.payload
        return aiocoap.Message(code=aiocoap.CHANGED)


class Slow(resource.Resource):
    async def render_get(self, request):
        await asyncio.sleep(0.5)
        return aiocoap.Message(payload=b"done")


class Ticking(resource.ObservableResource):
    state = 0

    async def tick(self):
        while True:
            await asyncio.sleep(0.2)
            self.state += 1
            self.updated_state()

    async def render_get(self, request):
        return aiocoap.Message(payload=b"state %d" % self.state)


async def main():
    site = resource.Site()
    site.add_resource([".well-known", "core"], resource.WKCResource(site.get_resources_as_linkheader))
    ticking = Ticking()
    site.add_resource(["large"], Large())
    site.add_resource(["slow"], Slow())
    site.add_resource(["obs"], ticking)
    keys = CredentialsMap()
    keys.load_from_dict({":device": {"dtls": {"psk": {"ascii": "secret"}, "client-identity": {"ascii": "device"}}}})
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.set_alpn_protocols(["coap"])
    tls.load_cert_chain(sys.argv[3], sys.argv[4])
    context = await aiocoap.Context.create_server_context(
        site, bind=(sys.argv[1], int(sys.argv[2])), transports=["udp6", "tcpserver", "tlsserver", "tinydtls_server"],
        server_credentials=keys, _ssl_context=tls)
    ticker = asyncio.create_task(ticking.tick())
    print("READY", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    ticker.cancel()
    await context.shutdown()


asyncio.run(main())
