#!/usr/bin/env python3
"""Runs the commands of README.md and of the manual's pages and compares the output that they show.

    manual_test.py --bin DIR [--setup] [PAGE ...]     pages by their names; default: README.md and all of them
    manual_test.py --bin DIR --show PAGE              prints each command with its output, for writing a page

A block of code is a run of indented lines, or lines between fences. In it `$ COMMAND` is a command, continued after a
backslash; the lines below it, up to an empty one, are its output. In a block without such a prompt a line that begins with
a program of this project is a command without output. Commands run under bash, in order, in a folder with the files that
write_users_files makes: one folder for each page. A command has to end with status 0; one that fails on purpose ends with
`; echo $?`.

Each line of shown output must be in the output of its command, in any order; numbers with their units match all numbers,
`...` matches everything, a line of `...` stands for lines that are left out. The comment `<!-- not run: REASON -->` above a
block takes it out; the reason must name what the block needs.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ROOT / "cli/manual"
PROGRAMS = ("dsrun ", "build/bin/", "scripts/", "cmake ", "ctest ")
NOT_RUN = re.compile(r"<!-- not run: (.*?) -->$")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?(?: ?(?:[KMG]i?B|B|ns|us|ms|s|min|Gbps)\b)?")
RUN_NAME = re.compile(r"\b([\w.-]+)-\d{8}-\d{6}-[0-9a-f]{16}\b")
SHORTEST_REASON = 12
SECONDS = 300


class Example:
    def __init__(self, place, command):
        self.place, self.command, self.shown = place, command, []


def blocks_of(text):
    """Yields (line number, lines, reason) of each block of code; reason is why it is not run, or None."""
    reason, block, start, fenced = None, [], 0, False
    for number, line in enumerate(text.split("\n") + ["end"], 1):
        fence = line.startswith("```")
        if fenced and not fence or not fenced and (line.startswith("    ") and line.strip()):
            block, start = block + [line if fenced else line[4:]], start or number
            continue
        if not fenced and not line.strip() and block:
            block.append("")
            continue
        if block:
            yield start, block, reason
            reason, block, start = None, [], 0
        fenced = fence and not fenced
        found = NOT_RUN.match(line)
        if found:
            if reason is not None:
                raise ValueError(f"line {number}: no block follows the comment above")
            reason = found.group(1)
        elif line.strip() and not fence and reason is not None:
            raise ValueError(f"line {number}: a block must follow the comment above it")


def command_marks(lines):
    """How the commands of a block begin: after a prompt, if one line has it."""
    return ("$ ",) if any(line.startswith("$ ") for line in lines) else PROGRAMS


def commands_of_tables(name, text):
    """The commands in the last columns of tables; their output is not shown."""
    for number, line in enumerate(text.split("\n"), 1):
        found = line.startswith("|") and re.findall(r"`(build/bin/[^`]*)`", line)
        if found:
            yield Example(f"{name}:{number}", found[-1])


def examples_of(page):
    """The commands of a page with the output that it shows."""
    text = page.read_text(encoding="utf-8")
    examples = list(commands_of_tables(page.name, text))
    for start, lines, reason in blocks_of(text):
        marks = command_marks(lines)
        if reason is not None:
            if len(reason) < SHORTEST_REASON:
                raise ValueError(f"{page.name}:{start}: '{reason}' is no reason")
            if not any(line.startswith(marks) for line in lines):
                raise ValueError(f"{page.name}:{start}: a block without commands needs no reason")
            continue
        current, continued = None, False
        for number, line in enumerate(lines, start):
            if continued:
                examples[-1].command += "\n" + line
                continued = line.endswith("\\")
            elif line.startswith(marks):
                examples.append(Example(f"{page.name}:{number}", line.removeprefix("$ ")))
                current = examples[-1] if line.startswith("$ ") else None
                continued = line.endswith("\\")
            elif not line.strip():
                current = None
            elif current:
                current.shown.append(line)
    return examples


def normal(line):
    """A line without what differs between two runs."""
    line = RUN_NAME.sub(r"\1-ID", line.strip())
    return re.sub(r"\s+", " ", NUMBER.sub("N", line))


def matches(shown, lines):
    pattern = ".*".join(re.escape(normal(part)) for part in shown.split("..."))
    return any(re.fullmatch(pattern, line) for line in lines)


def missing_lines(example, output):
    lines = [normal(line) for line in output.split("\n")]
    return [line for line in example.shown if line.strip() != "..." and not matches(line, lines)]


def write_users_files(folder):
    """Files of a user that the pages name."""
    def put(name, text, mode=0o644):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)

    script = ("import os, sys\nget = os.environ.get\n"
              "print('rank', get('RANK'), 'of', get('WORLD_SIZE'), sys.argv[1:], 'level', get('NCCL_DEBUG'))\n")
    put("train.py", script)
    put("package/train.py", script)
    put("my_program", "#!/bin/sh\necho rank $RANK of $WORLD_SIZE, LR=$LR, $(ulimit -n) files\n", 0o755)
    put("hostfile", "localhost slots=4\n")
    put("two_hosts", "worker-1 slots=2\nworker-2 slots=2\n")
    put("t5.json", '{"model_type": "t5"}\n')
    put("job.env", "NCCL_DEBUG=WARN\n")
    put("default_config.yaml", "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n")
    put("args.json", '{"lr_scheduler_type": "cosine", "max_steps": 5}\n')
    put("my_model/config.json", json.dumps({"model_type": "gpt2", "vocab_size": 512, "n_positions": 256, "n_embd": 32,
                                            "n_layer": 2, "n_head": 2}))
    shutil.copy(ROOT / "tests/unit/tokenizer/goldens/gpt2.tokenizer.json", folder / "my_model/tokenizer.json")
    put("my_model/chat_template.jinja",
        "{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}{{ eos_token }}\n{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>\n{% endif %}")
    put("corpus.txt", (ROOT / "LICENSE").read_text(encoding="utf-8") * 4)
    sums = [(a, b) for a in range(12) for b in range(12)]
    put("chats.jsonl", "".join(
        json.dumps({"messages": [{"role": "user", "content": f"How much is {a} and {b}?"},
                                 {"role": "assistant", "content": f"{a} and {b} are {a + b}."}]}) + "\n"
        for a, b in sums))
    put("qa.jsonl", "".join(json.dumps({"question": f"{a} and {b}?", "answer": str(a + b)}) + "\n" for a, b in sums))
    for name in ("D/data/train_sft-00000.jsonl", "D/data/train_sft-00001.jsonl", "D/test.jsonl"):
        put(name, (folder / "chats.jsonl").read_text(encoding="utf-8"))
    on_drive = {"device": "nvme", "nvme_path": "/tmp"}
    put("nvme.json", json.dumps({"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
                                 "zero_optimization": {"stage": 3, "offload_optimizer": on_drive,
                                                       "offload_param": on_drive}}))
    put("ds.json", json.dumps({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
                               "zero_optimization": {"stage": 2},
                               "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}}, indent=2) + "\n")


def prepare(folder, bin_dir):
    """A folder that looks like a user's: a checkout's parts, the programs, and own files."""
    for name in ("configs", "hostfile_examples", "scripts", "README.md"):
        (folder / name).symlink_to(ROOT / name)
    # Links of their own: were LibTorch there incomplete, setup.sh would remove it.
    (folder / ".deps").mkdir()
    for name in ("libtorch", "pyarrow"):
        if (ROOT / ".deps" / name).exists():
            (folder / ".deps" / name).symlink_to(ROOT / ".deps" / name)
    (folder / "build").symlink_to(bin_dir.parent)
    write_users_files(folder)


def run(example, folder, bin_dir):
    # No GPU, so that the shown output is that of every machine; a test fetches nothing.
    environment = {**os.environ, "PATH": f"{bin_dir}:{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": "", "PIP_NO_INDEX": "1",
                   "OMP_NUM_THREADS": "1"}
    return subprocess.run(["bash", "-c", example.command], cwd=folder, env=environment, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS,
                          check=False)


def is_a_machines_state(example, status):
    """`dsrun report` ends with 3 on a machine that could not run a job."""
    return example.command.endswith("dsrun report") and status == 3


def problems_of(page, options):
    examples = examples_of(page)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        prepare(folder, options.bin)
        for example in examples:
            if example.command.startswith("scripts/") and not options.setup:
                continue
            try:
                done = run(example, folder, options.bin)
            except subprocess.TimeoutExpired:
                yield f"{example.place}: not done after {SECONDS} s: {example.command}"
                continue
            if options.show:
                print(f"$ {example.command}\n{done.stdout}", end="")
                continue
            missing = missing_lines(example, done.stdout)
            if done.returncode != 0 and not is_a_machines_state(example, done.returncode):
                yield f"{example.place}: ended with {done.returncode}: {example.command}\n{done.stdout}"
            elif missing:
                lines = "\n".join(f"  not printed: {line}" for line in missing)
                yield f"{example.place}: {example.command}\n{lines}\n{done.stdout}"
    if not options.show:
        print(f"{page.name}: {len(examples)} commands", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--setup", action="store_true", help="run scripts/run.sh, too")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("pages", nargs="*")
    options = parser.parse_args()
    pages = [ROOT / "README.md", *sorted(PAGES.glob("*.md"))]
    if options.pages:
        pages = [page for page in pages if page.stem in options.pages]
    problems = []
    for page in pages:
        for problem in problems_of(page, options):
            print(problem, flush=True)
            problems.append(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
