"""Runs `python -m openhands.agent_server` with fewer garbage collections until the server listens.

Nearly all objects created by the imports stay alive, and each full collection traverses all of them. Until the server
listens, the collector therefore traverses mostly young objects. Then the existing objects are frozen, which excludes
them from later collections, and the default thresholds return. Without uvicorn's `Server.startup`, nothing changes.
"""

import gc
import runpy

try:
    from uvicorn import Server

    _default_thresholds = gc.get_threshold()
    _startup = Server.startup

    async def _startup_and_freeze(self, *arguments, **named):
        await _startup(self, *arguments, **named)
        gc.freeze()
        gc.set_threshold(*_default_thresholds)

    Server.startup = _startup_and_freeze
except (ImportError, AttributeError):
    pass
else:
    # Rare, not disabled: memory stays bounded even if the server never calls `startup`.
    gc.set_threshold(10_000, 1_000, 100)
runpy.run_module("openhands.agent_server", run_name="__main__", alter_sys=True)
