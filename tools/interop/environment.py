"""Exit status 0 if this interpreter has the packages of a requirements file, in the pinned versions."""

import importlib.metadata
import sys

for line in open(sys.argv[1], encoding="utf-8"):
    name, _, version = line.split("#")[0].strip().partition("==")
    if name:
        found = importlib.metadata.version(name)
        if version and found != version:
            sys.exit(f"{name} is {found}, {version} is wanted")
