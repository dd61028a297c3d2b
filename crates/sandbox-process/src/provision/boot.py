"""Does what `python -m openhands.agent_server` does, with fewer collections of garbage until the server listens.

Nearly all that is made while thousands of modules are imported stays, and each full collection walks through all of it.
So only what is young is looked at meanwhile. What is there at the end is never looked at again, and everything is as usual.
"""

import gc
import runpy

from uvicorn import Server

_usual = gc.get_threshold()
_startup = Server.startup


async def _started(self, *arguments, **named):
    await _startup(self, *arguments, **named)
    gc.freeze()
    gc.set_threshold(*_usual)


Server.startup = _started
# Not switched off: should the above never be called, memory is still bounded.
gc.set_threshold(10_000, 1_000, 100)
runpy.run_module("openhands.agent_server", run_name="__main__", alter_sys=True)
