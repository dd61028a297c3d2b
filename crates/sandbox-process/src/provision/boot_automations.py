"""Starts the automations service, and first puts back the runs that its last process was preparing.

Such a run is RUNNING and has no `sandbox_id`, which is stored once the command of the run has started. The automations
service would leave it so until its time limit, and then call it failed. As PENDING it starts again.
"""

import os
import sqlite3
import sys
from contextlib import closing

from uvicorn.main import main

_SCHEME = "sqlite+aiosqlite:///"
_PUT_BACK = (
    "UPDATE automation_runs SET status = 'PENDING', started_at = NULL, timeout_at = NULL, current_phase = NULL"
    " WHERE status = 'RUNNING' AND sandbox_id IS NULL"
)


def _put_back(file):
    with closing(sqlite3.connect(file, timeout=10)) as database, database:
        count = database.execute(_PUT_BACK).rowcount
    if count:
        print(f"{count} interrupted runs start again", file=sys.stderr)


_file = os.environ.get("AUTOMATION_DB_URL", "").removeprefix(_SCHEME)
if os.path.isfile(_file):
    try:
        _put_back(_file)
    except sqlite3.Error as error:
        # Another version of the database. The runs end at their time limit.
        print(f"cannot put interrupted runs back: {error}", file=sys.stderr)

sys.argv = ["uvicorn", "openhands.automation.app:app", *sys.argv[1:]]
main()
