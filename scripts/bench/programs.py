"""The programs that a benchmark runs, built by scripts/setup.sh when they are missing or out of date."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / os.environ.get("BUILD_DIR", "build")


def build(*targets, folder=BUILD):
    """Builds targets in a build folder, which scripts/setup.sh makes when there is none; returns the folder."""
    folder = pathlib.Path(folder).resolve()
    words = [word for target in targets for word in ("--target", target)]
    result = subprocess.run([ROOT / "scripts/setup.sh", *words], env={**os.environ, "BUILD_DIR": str(folder)},
                            stdout=sys.stderr)
    if result.returncode:
        sys.exit(result.returncode)  # the script has printed the reason
    return folder


def find(given, file, *targets):
    """The program that the user has given, or a file of the build folder, after its targets are built."""
    if given is None:
        return build(*targets) / file
    if not os.access(given, os.X_OK):
        sys.exit(f"{given} is not a program")
    return pathlib.Path(given).resolve()
