"""aiocoap's own example server, server.py of its source package, for weir coap check. Arguments: address and port, which the example does
not take. Prints READY; runs until its standard input ends."""

import logging
import os
import runpy
import sys
import threading

import aiocoap

logging.disable(logging.CRITICAL)
create = aiocoap.Context.create_server_context


async def bound(site, **settings):
    context = await create(site, **(settings | {"bind": (sys.argv[1], int(sys.argv[2]))}))
    print("READY", flush=True)
    return context


def until_the_end():
    sys.stdin.read()
    os._exit(0)


aiocoap.Context.create_server_context = bound
threading.Thread(target=until_the_end, daemon=True).start()
runpy.run_path(os.path.join(sys.prefix, "aiocoap", "server.py"), run_name="__main__")
