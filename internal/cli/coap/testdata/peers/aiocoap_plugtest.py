"""The resources of the ETSI CoAP plugtests on aiocoap, for weir coap check. Arguments: address and port. Prints READY; runs until its
standard input ends. What messages look like, blocks and observation are the library's; the resources are as small as the list allows."""

import asyncio
import hashlib
import sys
import time

import aiocoap
from aiocoap import resource
from aiocoap.credentials import CredentialsMap
from aiocoap.numbers.codes import Code


def text(payload, **options):
    return aiocoap.Message(payload=payload, content_format=0, **options)


class Test(resource.Resource):
    def get_link_description(self):
        return {"ct": "0"}

    async def render_get(self, request):
        return text(b"test")

    async def render_post(self, request):
        return aiocoap.Message(code=Code.CREATED, location_path=("location1", "location2", "location3"))

    async def render_put(self, request):
        return aiocoap.Message(code=Code.CHANGED)

    async def render_delete(self, request):
        return aiocoap.Message(code=Code.DELETED)


class Fixed(resource.Resource):
    def __init__(self, payload, **attributes):
        super().__init__()
        self.payload, self.attributes = payload, attributes

    def get_link_description(self):
        return self.attributes

    async def render_get(self, request):
        return text(self.payload)


class Separate(Fixed):
    async def render_get(self, request):
        await asyncio.sleep(1)
        return text(self.payload)


class LocationQuery(resource.Resource):
    async def render_post(self, request):
        return aiocoap.Message(code=Code.CREATED, location_query=("first=1", "second=2"))


class MultiFormat(resource.Resource):
    async def render_get(self, request):
        if request.opt.accept == 41:
            return aiocoap.Message(payload=b"<test/>", content_format=41)
        return text(b"test")


class Validate(resource.Resource):
    payload = b"first"

    def tag(self):
        return hashlib.sha256(self.payload).digest()[:4]

    async def render_get(self, request):
        if self.tag() in request.opt.etags:
            return aiocoap.Message(code=Code.VALID, etag=self.tag())
        return text(self.payload, etag=self.tag())

    async def render_put(self, request):
        if request.opt.if_match and self.tag() not in request.opt.if_match:
            return aiocoap.Message(code=Code.PRECONDITION_FAILED)
        self.payload = request.payload
        return aiocoap.Message(code=Code.CHANGED)


class Create(resource.Resource):
    payload = None

    async def render_put(self, request):
        if request.opt.if_none_match and self.payload is not None:
            return aiocoap.Message(code=Code.PRECONDITION_FAILED)
        code = Code.CREATED if self.payload is None else Code.CHANGED
        self.payload = request.payload
        return aiocoap.Message(code=code)

    async def render_delete(self, request):
        self.payload = None
        return aiocoap.Message(code=Code.DELETED)


class Stored(Fixed):
    async def render_put(self, request):
        self.payload = request.payload
        return aiocoap.Message(code=Code.CHANGED)

    async def render_delete(self, request):
        return aiocoap.Message(code=Code.DELETED)


class LargeCreate(resource.Resource):
    def __init__(self, site):
        super().__init__()
        self.site, self.number = site, 0

    async def render_post(self, request):
        self.number += 1
        path = ("large-create", str(self.number))
        self.site.add_resource(path, Stored(request.payload))
        return aiocoap.Message(code=Code.CREATED, location_path=path)


class LargePost(resource.Resource):
    async def render_post(self, request):
        return text(request.payload.upper(), code=Code.CHANGED)


class Path(Fixed):
    def get_link_description(self):
        return {"ct": "40"}

    async def render_get(self, request):
        return aiocoap.Message(payload=self.payload, content_format=40)


class Observed(resource.ObservableResource):
    """Changes every second; what was put is its value for the next one."""

    def __init__(self, length):
        super().__init__()
        self.length, self.put = length, None

    def get_link_description(self):
        return {"obs": "", "rt": "observe"}

    async def tick(self):
        while True:
            await asyncio.sleep(1)
            self.updated_state()
            self.put = None

    async def render_get(self, request):
        return text(self.put or str(time.time()).ljust(self.length, "*").encode())

    async def render_put(self, request):
        if request.opt.content_format != 0:
            self.updated_state(aiocoap.Message(code=Code.NOT_ACCEPTABLE))
        else:
            self.put = request.payload
            self.updated_state()
        return aiocoap.Message(code=Code.CHANGED)

    async def render_delete(self, request):
        self.updated_state(aiocoap.Message(code=Code.NOT_FOUND))
        return aiocoap.Message(code=Code.DELETED)


async def main():
    large = b"".join(b"line %2d of a representation in blocks ------------------------\n" % i for i in range(20))
    site = resource.Site()
    observed = {"obs": Observed(16), "obs-large": Observed(2000), "obs-pumping": Observed(1500)}
    resources = {
        ".well-known/core": resource.WKCResource(site.get_resources_as_linkheader, impl_info=None),
        "test": Test(), "seg1/seg2/seg3": Fixed(b"long path"), "query": Fixed(b"query"), "separate": Separate(b"later"),
        "location-query": LocationQuery(), "multi-format": MultiFormat(), "validate": Validate(), "create1": Create(),
        "large": Fixed(large, sz="1280"), "large-update": Stored(large), "large-create": LargeCreate(site), "large-post": LargePost(),
        "link1": Fixed(b"1", rt="Type1 Type2", **{"if": "If1"}), "link2": Fixed(b"2", rt="Type2 Type3", **{"if": "If2"}),
        "link3": Fixed(b"3", rt="Type1 Type3", **{"if": "foo"}), **observed,
        "path": Path(b"</path/sub1>,</path/sub2>"), "path/sub1": Fixed(b"/path/sub1"), "path/sub2": Fixed(b"/path/sub2"),
    }
    for path, one in resources.items():
        site.add_resource(path.split("/"), one)
    keys = CredentialsMap()
    keys.load_from_dict({":password": {"dtls": {"psk": {"ascii": "sesame"}, "client-identity": {"ascii": "password"}}}})
    await aiocoap.Context.create_server_context(
        site, bind=(sys.argv[1], int(sys.argv[2])), transports=["udp6", "tinydtls_server"], server_credentials=keys)
    ticks = [asyncio.create_task(one.tick()) for one in observed.values()]
    print("READY", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    for one in ticks:
        one.cancel()


asyncio.run(main())
