"""Runs tests of aiocoap's own suite, those that send bytes of which no client is capable, against a server that is there already.

Arguments: folder of aiocoap's sources, port at ::1, tests. A line per test, "ok NAME" or "failed NAME" and its error."""

import sys
import types
import unittest

import aiocoap
import aiocoap.transports.tcp

sys.path.insert(0, sys.argv[1])


class Elsewhere(unittest.IsolatedAsyncioTestCase):
    serveraddress = "::1"


def module(name, **names):
    """What the package leaves out, or would start a server of its own."""
    sys.modules["tests." + name] = types.ModuleType("tests." + name)
    vars(sys.modules["tests." + name]).update(names)


module("fixtures", precise_warnings=lambda expected: lambda test: test, no_warnings=lambda test: test)
module("common", tcp_disabled=False)
module("test_server", WithTestServer=Elsewhere)
aiocoap.COAP_PORT = int(sys.argv[2])


class Lines(unittest.TestResult):
    def addSuccess(self, test):
        print("ok", test.id().split(".")[-1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        print("failed", test.id().split(".")[-1], self.failures[-1][1].strip().split("\n")[-1])

    def addError(self, test, err):
        super().addError(test, err)
        print("failed", test.id().split(".")[-1], self.errors[-1][1].strip().split("\n")[-1])


unittest.defaultTestLoader.loadTestsFromNames(["tests." + name for name in sys.argv[3:]]).run(Lines())
