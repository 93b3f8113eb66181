"""An aiocoap client that a test drives over its standard input: one line per request, "METHOD URI [PAYLOAD-LENGTH]" or
"OBSERVE URI COUNT", answered by one line, "CODE 0 PAYLOAD" with line feeds written as \\n, or "ERROR ...".

Arguments: transport, and the credentials as aiocoap's JSON or nothing."""

import asyncio
import json
import sys

import aiocoap


def line(response):
    text = response.payload.decode("utf-8", "replace")
    return "%s 0 %s" % (response.code.dotted, text.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n"))


async def answer(context, method, uri, count=None):
    message = aiocoap.Message(code=aiocoap.GET if method == "OBSERVE" else getattr(aiocoap, method), uri=uri)
    if method == "OBSERVE":
        message.opt.observe = 0
        request = context.request(message)
        states = [(await request.response).opt.observe]
        async for notification in request.observation:
            states.append(notification.opt.observe)
            if len(states) == int(count):
                break
        request.observation.cancel()
        return "2.05 0 %d states" % len(set(states))
    if count is not None:
        message.payload = b"x" * int(count)
        message.opt.content_format = 0
    return line(await context.request(message).response)


async def main():
    context = await aiocoap.Context.create_client_context(transports=[sys.argv[1]])
    if len(sys.argv) > 2:
        context.client_credentials.load_from_dict(json.loads(sys.argv[2]))
    print("READY", flush=True)
    loop = asyncio.get_running_loop()
    while words := (await loop.run_in_executor(None, sys.stdin.readline)).split():
        try:
            reply = await asyncio.wait_for(answer(context, *words), 30)
        except Exception as e:
            reply = "ERROR %r" % e
        print(reply, flush=True)
    await context.shutdown()


asyncio.run(main())
