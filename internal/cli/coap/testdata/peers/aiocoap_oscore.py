"""OSCORE with aiocoap.

"server DIRECTORY ADDRESS PORT" serves /oscore (GET, PUT), and /obs, which counts ten times a second, until its input ends.
"client DIRECTORY URI" sends what its input names, "METHOD URI [PAYLOAD-LENGTH]" or "OBSERVE URI STATES", and answers with
"CODE 0 PAYLOAD" or "ERROR ...". DIRECTORY has aiocoap's security context.
"""
import asyncio
import sys

import aiocoap
import aiocoap.credentials
import aiocoap.oscore_sitewrapper
import aiocoap.resource


class Stored(aiocoap.resource.Resource):
    body = b"OSCORE Resource"

    async def render_get(self, request):
        return aiocoap.Message(payload=self.body)

    async def render_put(self, request):
        self.body = request.payload
        return aiocoap.Message(code=aiocoap.CHANGED)


class Counting(aiocoap.resource.ObservableResource):
    count = 0

    async def tick(self):
        while True:
            await asyncio.sleep(0.1)
            self.count += 1
            self.updated_state()

    async def render_get(self, request):
        return aiocoap.Message(payload=b"state %d" % self.count)


async def lines():
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("READY", flush=True)
    while line := await reader.readline():
        yield line.decode().split()


async def serve(directory, address, port):
    site = aiocoap.resource.Site()
    counting = Counting()
    site.add_resource(["oscore"], Stored())
    site.add_resource(["obs"], counting)
    credentials = aiocoap.credentials.CredentialsMap()
    credentials.load_from_dict({":peer": {"oscore": {"basedir": directory}}})
    site = aiocoap.oscore_sitewrapper.OscoreSiteWrapper(site, credentials)
    context = await aiocoap.Context.create_server_context(site, bind=(address, int(port)), server_credentials=credentials)
    task = asyncio.create_task(counting.tick())
    async for _ in lines():
        pass
    task.cancel()
    await context.shutdown()


def show(response):
    text = response.payload.decode(errors="replace").replace("\\", "\\\\").replace("\n", "\\n")
    return "%d.%02d 0 %s" % (response.code >> 5, response.code & 31, text)


async def observe(context, uri, states):
    request = context.request(aiocoap.Message(code=aiocoap.GET, uri=uri, observe=0))
    last = await asyncio.wait_for(request.response, 20)
    seen = 1
    async with asyncio.timeout(20):
        async for last in request.observation:
            seen += 1
            if seen == states:
                break
    request.observation.cancel()
    return show(last)


async def ask(directory, uri):
    context = await aiocoap.Context.create_client_context()
    context.client_credentials.load_from_dict({uri + "/*": {"oscore": {"basedir": directory}}})
    async for method, target, *rest in lines():
        try:
            if method == "OBSERVE":
                answer = await observe(context, target, int(rest[0]))
            else:
                payload = b"x" * int(rest[0]) if rest else b""
                message = aiocoap.Message(code=getattr(aiocoap, method), uri=target, payload=payload)
                if rest:
                    message.opt.content_format = 0
                answer = show(await asyncio.wait_for(context.request(message).response, 20))
        except Exception as e:
            answer = "ERROR %r" % e
        print(answer, flush=True)
    await context.shutdown()


if sys.argv[1] == "server":
    asyncio.run(serve(*sys.argv[2:]))
else:
    asyncio.run(ask(*sys.argv[2:]))
