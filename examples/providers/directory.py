"""A provider in Python whose cloud is a folder: a host is a folder in $MACHINES, a host that joined has a file `cluster`.

    bigfleet provider exec --command "python3 examples/providers/directory.py"
"""

import base64
import json
import os
import pathlib
import shutil
import sys
import tempfile

FALLBACK = os.path.join(tempfile.gettempdir(), f"bigfleet-machines-{os.getuid()}")
ROOT = pathlib.Path(os.environ.get("MACHINES", FALLBACK))


def describe(request):
    def machine(n):
        made = (ROOT / f"slot-{n}").is_dir()
        return {
            "id": f"slot-{n}",
            "host": {"reference": f"folder-{n}"} if made else None,
            "instance_type": "folder",
            "zone": "here",
            "capacity_type": "on-demand",
            "price_per_hour": 0.1,
            "resources": {"cpu": "1", "memory": "2Gi"},
            "allocatable": {"cpu": "4", "memory": "8Gi"},
        }

    count = request["seed_count"] or 32
    return {"can_delete": True, "resumes": True, "machines": [machine(n) for n in range(count)]}


def create(request):
    # Made once, however often it is asked for: a cloud would be given request["operation_id"].
    host = ROOT / request["machine"]["id"]
    host.mkdir(exist_ok=True)
    return {"host": {"reference": "folder-" + host.name.removeprefix("slot-")}}


def configure(request):
    # A real host would run this at its boot. It is a secret: it never reaches a log, an argument or a file that stays.
    base64.b64decode(request["blob_base64"], validate=True)
    (ROOT / request["machine"]["id"] / "cluster").write_text(request["machine"]["cluster"])
    return {}


def drain(request):
    (ROOT / request["machine"]["id"] / "cluster").unlink(missing_ok=True)
    return {}


def delete(request):
    shutil.rmtree(ROOT / request["machine"]["id"], ignore_errors=True)
    return {}


OPERATIONS = {f.__name__: f for f in (describe, create, configure, drain, delete)}


def main():
    os.umask(0o077)
    ROOT.mkdir(parents=True, exist_ok=True)
    request = json.load(sys.stdin)
    operation = OPERATIONS.get(request["operation"])
    if request["version"] != 1 or operation is None:
        json.dump({"error": f"not known here: {request['operation']} of version {request['version']}"}, sys.stdout)
        return
    json.dump(operation(request), sys.stdout)


if __name__ == "__main__":
    main()
