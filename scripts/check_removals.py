#!/usr/bin/env python3
"""Holds removals to proof: nothing is removed, and no process is ended, because of a name alone.

Each call that removes a file or folder, or that ends a process, stands in ALLOWED with its proof: the caller made the
thing and still holds it, or a mark in it says so (runtime/base/owner_mark.h). Programs that choose processes by name
(pkill, killall) and patterns in `rm -r` or `find -delete` are never allowed.

    scripts/check_removals.py          checks the tree; exit status 1 when a removal has no proof
"""

import re
import sys

from tracked import ROOT, tracked

SOURCES = ("cli/*.cc", "cli/*.h", "daemon/*.cc", "daemon/*.h", "runtime/*.cc", "runtime/*.h", "runtime/*.cu", "scripts/*.sh",
           ".ci/*")
REMOVAL = re.compile(r"\b(?:remove_all|RemoveTree|unlink|unlinkat|rmdir|shm_unlink|mq_unlink)\s*\(|\bUnlink\(|"
                     r"\b(?:fs|filesystem)::remove\(|::kill\(|\bkillpg\(|\brm -[a-zA-Z]*[rf]|\brmdir \"")
NEVER = re.compile(r"\bpkill\b|\bkillall\b|\brm -[a-zA-Z]*r[a-zA-Z]* [^;|&]*\*|-exec rm|\bfind\b[^;]*-delete\b")

# path: (lines with removals, their proof). A line more needs a look at all of them.
ALLOWED = {
    ".ci/requirements": (3, "a control group and a folder that it made"),
    ".ci/run": (2, "a folder that it made with mktemp"),
    "cli/agent/agent_address.cc": (3, "the socket and address of a run directory that it has locked"),
    "cli/agent/agent_guardian.cc": (1, "a file of a run directory that it has locked"),
    "cli/agent/job_registry.cc": (3, "entries in a private folder: its own, or of an agent that has ended; an empty folder"),
    "cli/front/agent_process.cc": (3, "its own child, which it has not reaped, and the group that it leads"),
    "cli/host/local_daemon.cc": (2, "its own children, which it has not reaped"),
    "cli/job/run_directory.cc": (1, "the verdict of a run directory that it has locked"),
    "cli/remote/local_process.cc": (1, "its own child, which it has not reaped"),
    "cli/remote/proxy_command.cc": (1, "its own child, which it has not reaped"),
    "cli/remote/remote_daemon.cc": (6, "files of a folder with an owner mark; a dsrund whose hash is its name; empty folders"),
    "cli/tokenize/tokenize_files.cc": (1, "a temporary file that it made with O_EXCL"),
    "daemon/host/last_words.cc": (1, "the file of its own job on this host"),
    "daemon/host/orphans.cc": (1, "children of the guardian, which nobody else reaps"),
    "daemon/inspect/child_output.cc": (2, "the groups of its own children, which it has not reaped"),
    "daemon/job/generation.cc": (1, "a folder that it made with mkdir inside the job's private folder"),
    "daemon/main.cc": (2, "its own child, which it has not reaped; a socket in its private folder"),
    "daemon/ranks/rank_process.cc": (2, "its own child and that child's group, which it has not reaped"),
    "runtime/base/file_system.cc": (2, "the system call itself"),
    "runtime/base/file_system.h": (1, "the system call itself"),
    "runtime/base/files.cc": (3, "RemoveTree itself; a temporary file that it made with O_EXCL"),
    "runtime/base/files.h": (1, "RemoveTree itself"),
    "runtime/checkpoint_format/commit.cc": (8, "folders with a writer's mark or a manifest; links and empty folders; drafts of `latest`"),
    "runtime/checkpoint_format/folder_mark.cc": (1, "a file with an owner mark"),
    "runtime/checkpoint/safetensors.cc": (1, "a temporary file that it made"),
    "runtime/plan/data/host_cache.cc": (1, "a folder with an owner mark"),
    "runtime/models/weights/weights.cc": (2, "the weights that a model folder, named by the user, held before"),
    "runtime/offload/scratch_file.cc": (1, "a file that it made with O_EXCL a moment ago"),
    "runtime/process/owned_cgroup.cc": (4, "control groups with an owner mark, and their processes"),
    "runtime/process/private_folder.cc": (3, "folders with an owner mark, or that this object made"),
    "scripts/bench/setup_peers.sh": (1, "a folder with the mark of a whole installation"),
    "scripts/setup.sh": (3, "folders with the mark of a fetch; a file that it made itself"),
    "scripts/test_aarch64.sh": (2, "folders inside a folder with its mark"),
}


def code_lines(path, text):
    """The lines with their numbers, without comments that fill a line."""
    comment = re.compile(r"^\s*//.*" if path.endswith((".cc", ".h", ".cu")) else r"^\s*#.*")
    for number, line in enumerate(text.split("\n"), 1):
        yield number, comment.sub("", line)


def problems_of(path, text):
    found = [number for number, line in code_lines(path, text) if REMOVAL.search(line)]
    for number, line in code_lines(path, text):
        if NEVER.search(line):
            yield f"{path}:{number}: chooses what to remove or to end by a name"
    allowed, proof = ALLOWED.get(path, (0, ""))
    if len(found) > allowed:
        lines = ", ".join(map(str, found))
        yield f"{path}: {len(found)} removals (lines {lines}), {allowed} have a proof in scripts/check_removals.py: {proof}"
    if len(found) < allowed:
        yield f"{path}: {len(found)} removals, scripts/check_removals.py lists {allowed}: lower it"


def main():
    paths = tracked(*SOURCES)
    problems = [f"{path}: no such file, but scripts/check_removals.py lists it" for path in ALLOWED if path not in paths]
    for path in paths:
        problems += problems_of(path, (ROOT / path).read_text())
    print("\n".join(problems) if problems else "check_removals: ok")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
