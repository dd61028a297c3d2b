"""Does what `python -m openhands.agent_server` does, with fewer collections of garbage until the server listens.

Nearly all that is made while thousands of modules are imported stays, and each full collection walks through all of it.
So for the most part only what is young is looked at meanwhile. What is there at the end is never looked at again, and
everything is as usual. Where the server is not started as it is known to be, nothing is different from the beginning.
"""

import gc
import runpy

try:
    from uvicorn import Server

    _usual = gc.get_threshold()
    _startup = Server.startup

    async def _started(self, *arguments, **named):
        await _startup(self, *arguments, **named)
        gc.freeze()
        gc.set_threshold(*_usual)

    Server.startup = _started
except (ImportError, AttributeError):
    pass
else:
    # Rarely, but not never: memory is bounded also where the above is not called.
    gc.set_threshold(10_000, 1_000, 100)
runpy.run_module("openhands.agent_server", run_name="__main__", alter_sys=True)
