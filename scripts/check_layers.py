#!/usr/bin/env python3
"""Holds every #include to the torch line and to the layer table: a folder includes only folders of its row.

The table below is the design; a folder that is not in it, a row without a folder, an include it does
not allow, or something that it allows and nothing includes, is an error. So is a folder above its floor, a sheet with
too many folders, a circle, or an arrow up (scripts/structure.py). Exit 0 when all is well, 1 with one line per violation.

    scripts/check_layers.py --draw [FILE]                           draws the folders and their includes as SVG
    scripts/check_layers.py --draw [FILE] --inside runtime/models   draws the subfolders and modules of a folder
"""

import argparse
import collections
import pathlib
import re
import sys

import draw_structure
import structure
from tracked import ROOT, tracked

# The torch line: runtime/ below it is free of LibTorch, and all of runtime/ that cli and daemon may include.
BELOW = ("base", "process", "config", "tokenizer", "checkpoint_format", "offload", "plan")
# Inside runtime/: folder -> folders it may include besides itself, base and config.
RUNTIME = {
    "base": set(),
    "process": set(),
    "config": set(),
    "tokenizer": set(),
    "checkpoint_format": set(),
    "offload": set(),
    "plan": {"checkpoint_format", "tokenizer"},
    # ---- the torch line ----
    "device": {"plan"},
    "comm": {"plan", "device"},
    "autograd": {"device", "comm", "offload"},
    "optim": {"plan", "device", "comm"},
    "checkpoint": {"plan", "checkpoint_format", "comm"},
    "parallel": {"plan", "device", "comm", "autograd"},
    "data": {"plan", "checkpoint_format", "checkpoint"},
    "zero": {"plan", "device", "comm", "offload", "checkpoint", "optim", "autograd"},
    "models": {"plan", "device", "checkpoint", "autograd", "parallel"},
    "engine": {"plan", "device", "comm", "offload", "autograd", "checkpoint_format", "checkpoint", "optim", "zero",
               "models"},
    "inference": {"plan", "tokenizer", "models"},
}
# Above all others: they may include whatever they like of them.
ROOF = ("rank", "python", "examples")
RUNTIME |= {folder: set(RUNTIME) - {"process"} for folder in ROOF}
RUNTIME["python"].add("rank")  # it reports to dsrun as a rank does

# Inside cli/ and daemon/: folder -> folders of the same program that it may include besides itself.
# "" is the program's own folder, with main.cc. No folder is in the row of one that is in its own.
CLI = {
    "flags": set(),
    "launch": {"flags"},
    "remote": {"flags", "launch"},
    "host": {"remote"},
    "job/verdict": {"remote", "host"},
    "job": {"flags", "launch", "host", "job/verdict"},
    "console": {"flags", "job", "job/verdict"},
    "session": {"remote", "host", "job", "job/verdict"},
    "agent": {"host", "job", "job/verdict", "console", "session"},
    "front": {"flags", "host", "job", "job/verdict", "console", "agent"},
    "train": {"flags", "launch", "job", "front"},
    "report": {"remote", "host", "job", "job/verdict", "session"},
    "tokenize": set(),
    "translate": {"flags"},
    "commands": {"flags", "launch", "job", "agent", "front", "train", "report", "tokenize", "translate"},
    "": {"flags", "job", "commands"},
}
DAEMON = {
    "loop": set(),
    "host": set(),
    "inspect": set(),
    "logs": {"loop"},
    "ranks": {"inspect", "logs"},
    "job": {"loop", "host", "inspect", "logs", "ranks"},
    "network": {"loop", "inspect", "job"},
    "": {"loop", "host", "job", "network"},
}
FLOORS = {"cli": CLI, "daemon": DAEMON}

# Torch-free: nothing here includes ATen, c10 or torch. The cores of comm stand above the line, for nobody below uses
# them, and sanitizers run their tests without LibTorch.
TORCH_FREE = ("cli/", "daemon/", "proto/", *(f"runtime/{folder}/" for folder in BELOW), "runtime/comm/shm/",
              "runtime/comm/net/")

# Floors inside a folder: what files whose path begins so may include besides their own header. The
# longest row counts. A "*" stands for the files of that folder itself.
OPTIM = "runtime/optim/"
TOKENIZER = "runtime/tokenizer/"
PLAN = "runtime/plan/"
MODELS = "runtime/models/"
ZERO = "runtime/zero/"
ENGINE = "runtime/engine/"
CONFIG_USES = ("runtime/base/", "runtime/config/keys/", "runtime/config/check/", "runtime/config/*")
INNER = {
    "runtime/comm/shm/": ("runtime/base/", "runtime/comm/shm/"),
    "runtime/comm/net/": ("runtime/base/", "runtime/comm/shm/", "runtime/comm/net/"),
    # Those of plan, from the ground.
    PLAN + "mesh/": ("runtime/base/", "runtime/config/", PLAN + "mesh/"),
    PLAN + "pipeline/": ("runtime/base/", PLAN + "pipeline/"),
    PLAN + "sequence/": ("runtime/base/", PLAN + "sequence/"),
    PLAN + "schedule/": ("runtime/base/", "runtime/config/"),
    PLAN + "data/": ("runtime/base/", "runtime/config/", "runtime/checkpoint_format/", TOKENIZER + "corpus/", PLAN + "data/"),
    PLAN + "zero/": ("runtime/base/", "runtime/config/", PLAN + "zero/"),
    PLAN + "model/": ("runtime/base/", "runtime/config/expert_gate_config.h", "runtime/checkpoint_format/",
                      PLAN + "sequence/", PLAN + "model/"),
    PLAN + "memory/": ("runtime/base/", "runtime/config/", PLAN + "pipeline/", PLAN + "sequence/", PLAN + "zero/", PLAN + "model/",
                       PLAN + "memory/"),
    PLAN + "estimate/": ("runtime/base/", "runtime/config/", "runtime/checkpoint_format/", PLAN + "pipeline/",
                         PLAN + "model/", PLAN + "memory/", PLAN + "estimate/"),
    # Those of models, zero and engine, from the ground.
    MODELS + "kernels/": ("runtime/base/", "runtime/device/", "runtime/autograd/", "runtime/parallel/", PLAN, MODELS + "kernels/"),
    MODELS: ("runtime/base/", "runtime/device/", "runtime/autograd/", "runtime/checkpoint/", "runtime/parallel/", PLAN,
             MODELS + "kernels/", MODELS + "*"),
    MODELS + "layers/": ("runtime/base/", "runtime/device/", "runtime/autograd/", "runtime/parallel/", PLAN, MODELS + "kernels/",
                         MODELS + "*", MODELS + "layers/"),
    MODELS + "weights/": ("runtime/base/", "runtime/checkpoint/", PLAN, MODELS + "kernels/", MODELS + "*", MODELS + "layers/",
                          MODELS + "weights/"),
    MODELS + "decoder/": ("runtime/base/", "runtime/config/", "runtime/device/kernels/", "runtime/parallel/", PLAN, MODELS + "kernels/", MODELS + "*",
                          MODELS + "layers/", MODELS + "weights/", MODELS + "decoder/"),
    ZERO + "storage/": ("runtime/base/", "runtime/config/", "runtime/device/", "runtime/comm/", "runtime/offload/",
                        "runtime/checkpoint/", PLAN, ZERO + "storage/"),
    ZERO + "exchange/": ("runtime/base/", "runtime/config/", "runtime/comm/", ZERO + "storage/", ZERO + "exchange/"),
    ZERO: ("runtime/base/", "runtime/device/", "runtime/comm/", "runtime/checkpoint/", "runtime/optim/", "runtime/autograd/",
           PLAN, ZERO + "storage/", ZERO + "exchange/", ZERO + "*"),
    ZERO + "optimizer/": ("runtime/base/", "runtime/config/", "runtime/device/", "runtime/comm/", "runtime/offload/",
                          "runtime/checkpoint/", "runtime/optim/", PLAN, ZERO + "storage/", ZERO + "*", ZERO + "optimizer/"),
    ENGINE + "report/": ("runtime/base/", "runtime/device/", ENGINE + "report/"),
    ENGINE: ("runtime/base/", "runtime/config/", "runtime/device/", "runtime/comm/", "runtime/offload/", "runtime/autograd/",
             "runtime/checkpoint/", "runtime/checkpoint_format/", "runtime/optim/", ZERO, MODELS, PLAN, ENGINE + "report/",
             ENGINE + "*"),
    ENGINE + "loop/": ("runtime/base/", "runtime/comm/", "runtime/checkpoint/", "runtime/checkpoint_format/", MODELS, ENGINE + "*",
                       ENGINE + "loop/"),
    # The floors of config, from the ground: keys, checks, what a config says, its sections, files.
    "runtime/config/keys/": ("runtime/config/keys/",),
    "runtime/config/check/": ("runtime/base/", "runtime/config/keys/", "runtime/config/check/"),
    "runtime/config/": CONFIG_USES,
    "runtime/config/sections/": CONFIG_USES + ("runtime/config/sections/",),
    "runtime/config/file/": CONFIG_USES + ("runtime/config/sections/", "runtime/config/file/"),
    # Those of tokenizer, from the ground: texts, the steps from a text to its tokens and back, all of them together, files.
    TOKENIZER + "text/": ("runtime/base/", TOKENIZER + "text/"),
    TOKENIZER + "chat/": ("runtime/base/", TOKENIZER + "text/", TOKENIZER + "chat/"),
    TOKENIZER + "normalizers/": ("runtime/base/", TOKENIZER + "text/", TOKENIZER + "normalizers/"),
    TOKENIZER + "pre_tokenizers/": ("runtime/base/", TOKENIZER + "text/", TOKENIZER + "pre_tokenizers/"),
    TOKENIZER + "models/": ("runtime/base/", TOKENIZER + "text/", TOKENIZER + "models/"),
    TOKENIZER + "post_processors/": ("runtime/base/", TOKENIZER + "text/", TOKENIZER + "post_processors/"),
    TOKENIZER + "decoders/": ("runtime/base/", TOKENIZER + "text/", TOKENIZER + "pre_tokenizers/", TOKENIZER + "decoders/"),
    TOKENIZER: ("runtime/base/", TOKENIZER + "text/", TOKENIZER + "normalizers/", TOKENIZER + "pre_tokenizers/",
                TOKENIZER + "models/", TOKENIZER + "post_processors/", TOKENIZER + "decoders/", TOKENIZER + "*"),
    TOKENIZER + "file/": ("runtime/base/", TOKENIZER + "text/", TOKENIZER + "normalizers/", TOKENIZER + "pre_tokenizers/",
                          TOKENIZER + "models/", TOKENIZER + "*", TOKENIZER + "file/"),
    TOKENIZER + "corpus/": ("runtime/base/", TOKENIZER + "text/", TOKENIZER + "chat/", TOKENIZER + "file/", TOKENIZER + "*", TOKENIZER + "corpus/"),
    # Those of optim.
    OPTIM + "kernels/": ("runtime/base/", "runtime/config/", "runtime/device/", OPTIM + "kernels/"),
    OPTIM + "cuda/": (OPTIM + "kernels/", OPTIM + "cuda/"),
    OPTIM + "groups/": ("runtime/base/", OPTIM + "kernels/", OPTIM + "groups/"),
    OPTIM: ("runtime/base/", "runtime/config/", "runtime/device/", "runtime/comm/", OPTIM + "kernels/", PLAN + "schedule/",
            OPTIM + "groups/", OPTIM + "optimizer.h", OPTIM + "elementwise.h"),
    OPTIM + "one_bit/": ("runtime/config/", "runtime/comm/", OPTIM + "kernels/", OPTIM + "optimizer.h", OPTIM + "one_bit/"),
}

# Outside runtime/: top-level folder -> what it may include.
TOP = {
    "proto": [],
    "cli": ["cli/", "proto/", "daemon/inspect/", *(f"runtime/{folder}/" for folder in BELOW)],
    "daemon": ["daemon/", "proto/", "runtime/base/", "runtime/process/"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
TORCH_INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]((?:ATen|torch|c10)/[^>"]*)', re.M)
OURS = ("cli/", "daemon/", "proto/", "runtime/", "tests/")


def folder_of(path):
    return str(pathlib.PurePosixPath(path).parent)


def inner_row(source):
    return max((row for row in INNER if source.startswith(row)), key=len, default=None)


def covers(entry, include):
    """Whether an entry of an inner row allows `include`."""
    return folder_of(include) == entry[:-2] if entry.endswith("/*") else include.startswith(entry)


def floor_violation(top, source, include):
    """Why a folder of the program `top` may not include `include`, or None."""
    if top not in FLOORS or not include.startswith(f"{top}/"):
        return None
    folder, target = (folder_of(path)[len(top) + 1:] for path in (source, include))
    if folder not in FLOORS[top]:
        return f"{top}/{folder} is not in the layer table"
    if target == folder or target in FLOORS[top][folder]:
        return None
    return f"{top}/{folder} may include of {top}/ only {', '.join(sorted(FLOORS[top][folder])) or 'itself'}"


def link_violations(top):
    """Where the libraries of the program `top` link other folders of it than the table says."""
    text = (ROOT / top / "CMakeLists.txt").read_text(encoding="utf-8")
    linked = {name: set(re.findall(rf"\b{top}_(\w+)", deps))
              for name, deps in re.findall(rf"ds_library\({top}_(\w+)[^)]*?DEPS([^)]*)\)", text)}
    allowed = {folder.split("/")[-1]: {each.split("/")[-1] for each in row}
               for folder, row in FLOORS[top].items() if folder}
    return [f"{top}/CMakeLists.txt: {name} links {', '.join(sorted(linked.get(name, []))) or 'nothing'}, "
            f"its row allows {', '.join(sorted(row)) or 'nothing'}"
            for name, row in allowed.items() if linked.get(name) != row]


def violation(source, include):
    """Why `source` may not include `include`, or None."""
    parts = pathlib.PurePosixPath(source).parts
    if parts[0] == "tests" or not include.startswith(OURS):
        return None
    if include.startswith("tests/"):
        return "nothing includes tests"
    if parts[0] in TOP:
        if not include.startswith(tuple(TOP[parts[0]])):
            return f"{parts[0]}/ may include only {', '.join(TOP[parts[0]])}"
        return floor_violation(parts[0], source, include)
    if parts[0] != "runtime":
        return f"{parts[0]}/ is not in the layer table"
    inner = inner_row(source)
    own_header = source.rpartition(".")[0] + ".h"
    if inner and include != own_header and not any(covers(entry, include) for entry in INNER[inner]):
        return f"{inner} may include only {', '.join(INNER[inner])}"
    folder = parts[1]
    if folder not in RUNTIME:
        return f"runtime/{folder} is not in the layer table"
    if not include.startswith("runtime/"):
        return "runtime/ never includes cli, daemon or proto"
    target = pathlib.PurePosixPath(include).parts[1]
    if target == folder or target == "base" or (target == "config" and folder != "base"):
        return None
    if target in RUNTIME[folder]:
        return None
    return f"runtime/{folder} may include {', '.join(sorted(RUNTIME[folder] | {'base', 'config'}))}"


def unused(includes):
    """What rows allow and none of `includes`, pairs of a source and what it includes, needs."""
    by_row = collections.defaultdict(set)  # what the files of a row include
    for source, include in includes:
        by_row[folder_of(source)].add(include)
        for row in {pathlib.PurePosixPath(source).parts[0], "/".join(source.split("/")[:2]), inner_row(source)}:
            by_row[row].add(include)
    wanted = [(f"runtime/{folder}", f"runtime/{target}/") for folder, row in RUNTIME.items() if folder not in ROOF
              for target in row]
    wanted += [(f"{top}/{folder}".rstrip("/"), f"{top}/{target}/*") for top, rows in FLOORS.items()
               for folder, row in rows.items() for target in row]
    wanted += [(row, entry) for rows in (TOP, INNER) for row, entries in rows.items() for entry in entries
               if entry.rstrip("/") != row.rstrip("/")]
    return [f"{row} may include {entry}, but nothing of it does" for row, entry in wanted
            if not any(covers(entry, include) for include in by_row[row])]


def check_files(sources):
    """The problems of the files, and the pairs of a source and the file that it includes."""
    problems, includes = [], []
    for source in sources:
        text = (ROOT / source).read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            includes.append((source, match.group(1)))
            why = violation(source, match.group(1))
            if why:
                problems.append(f"{source}:{number}: includes {match.group(1)}: {why}")
        if source.startswith(TORCH_FREE):
            for match in TORCH_INCLUDE.finditer(text):
                problems.append(f"{source}: includes {match.group(1)}, but this folder is torch-free")
    return problems, includes


def draw(sheet, inside, path):
    title = f"{inside or 'dsrun'}: {sheet.counts()}"
    svg = draw_structure.draw(sheet, title, lambda box: f"{box}/".startswith(TORCH_FREE))
    if path == "-":
        sys.stdout.write(svg)
    else:
        pathlib.Path(path).write_text(svg, encoding="utf-8")


def read_options():
    parser = argparse.ArgumentParser(description="Checks the includes against the layer table.")
    parser.add_argument("--draw", metavar="FILE", nargs="?", const="-", help="write the structure as SVG (default: -)")
    parser.add_argument("--inside", metavar="FOLDER", type=lambda folder: folder.rstrip("/"),
                        help="draw the inside of a folder")
    options = parser.parse_args()
    if options.inside and not (ROOT / options.inside).is_dir():
        parser.error(f"--inside {options.inside}: no such folder")
    return options


def main():
    options = read_options()
    problems = [f"runtime/{folder} is in the layer table, but not in the tree"
                for folder in RUNTIME if not (ROOT / "runtime" / folder).is_dir()]
    problems += [problem for top in FLOORS for problem in link_violations(top)]
    sources = tracked("*.h", "*.cc", "*.cu")
    found, includes = check_files(sources)
    problems += found + unused(includes)
    sheets = {None: structure.whole_sheet(sources, includes)}
    sheets |= {folder: structure.inner_sheet(folder, sources, includes) for folder in structure.MAX_INSIDE}
    if options.inside:
        sheets[options.inside] = structure.inner_sheet(options.inside, sources, includes)
    problems += [problem for inside, sheet in sheets.items() for problem in structure.sheet_problems(sheet, inside)]
    if options.draw:
        draw(sheets[options.inside], options.inside, options.draw)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"check_layers: {len(problems)} violation(s)" if problems else "check_layers: ok", file=sys.stderr)
    print(f"  {sheets[options.inside].counts()}; {structure.module_counts(sources, includes)}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
