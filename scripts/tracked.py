"""The files of this tree that the checks read."""

import fnmatch
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOT_OURS = ("build*", ".*", "runs", "__pycache__")  # as .gitignore says


def tracked(*patterns):
    """The paths, below ROOT and sorted, that match one of the patterns, whose * stands for slashes, too: those that git
    knows or would add, or, in a copy of the tree without git, those that are there."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
                            cwd=ROOT, capture_output=True, text=True, check=False)
    paths = [path for path in listed.stdout.splitlines() if (ROOT / path).exists()]
    return sorted(set(paths or walk(patterns)))


def walk(patterns):
    for top in ROOT.iterdir():
        if any(fnmatch.fnmatch(top.name, name) for name in NOT_OURS):
            continue
        for path in (top, *top.rglob("*")) if top.is_dir() else (top,):
            name = path.relative_to(ROOT).as_posix()
            if path.is_file() and any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                yield name
