#!/usr/bin/env python3
"""Makes the reference pages of the manual: flags, statuses, metrics and environment, in cli/manual.

Flags and exit statuses are those that dsrun prints as its manual page. Names of metrics and of environment variables come
from the sources that write and read them; their meanings stand here, and a name without a meaning, or a meaning without a
name, is an error.

    scripts/make_references.py --bin build/bin            writes the pages
    scripts/make_references.py --bin build/bin --check    compares them; exit status 1 when one differs
"""

import argparse
import difflib
import pathlib
import re
import subprocess
import sys
import textwrap

from tracked import ROOT, tracked

PAGES = ROOT / "cli/manual"
WIDTH = 80
NAME_WIDTH = 30

METRICS = {
    "step": ("number", "finished optimizer steps, over restarts and resumes"),
    "loss": ("number", "mean over all ranks and micro-batches of the step"),
    "grad_norm": ("number", "global L2 norm of the gradient before clipping"),
    "lr": ("number", "learning rate of this update"),
    "loss_scale": ("number", "loss scale; 1 in fp32 and bf16"),
    "skipped": ("true/false", "no update: the gradient was not finite"),
    "tokens": ("number", "tokens of all ranks and micro-batches"),
    "samples": ("number", "samples of all ranks and micro-batches"),
    "step_seconds": ("number", "duration of the step"),
    "data_seconds": ("number", "part of it that rank 0 waited for samples"),
    "tokens_per_second": ("number", "tokens over step_seconds"),
    "communicated": ("object", "calls and bytes of rank 0 by collective; see below"),
    "memory": ("object", "memory of rank 0 in bytes; see below"),
    "phase_seconds": ("object", "times of the phases, with `wall_clock_breakdown`"),
    "eval_loss": ("number", "evaluation: mean loss of the tokens that count"),
    "eval_perplexity": ("number", "evaluation: e to the power of eval_loss"),
    "eval_accuracy": ("number", "evaluation: share of tokens ranked first"),
    "eval_tokens": ("number", "evaluation: tokens that count"),
    "eval_seconds": ("number", "evaluation: duration"),
    "expert_imbalance": ("layers", "routes of the fullest expert over the mean"),
    "expert_routes": ("layers", "routes of each expert, up to 4096 numbers"),
}
MEMORY = {
    "parameters": "weights in the precision of the computation",
    "gradients": "gradients",
    "optimizer_state": "state of the optimizer",
    "master_weights": "fp32 weights next to 16-bit ones",
    "activations": "activations (measured)",
    "comm_buffers": "buffers of ZeRO and of collectives",
    "other": "other buffers",
}
TIERS = {
    "device": "GPU memory",
    "host": "memory of the process",
    "pinned": "pinned host memory",
    "file": "files on NVMe",
    "mapped": "memory shared by ranks, buffers of files",
}
# Variables that dsrun sets for each rank, those that a user may set, and those that dsrun only looks at.
SET = {
    "RANK": "number of the rank in the job, from 0",
    "LOCAL_RANK": "number of the rank on its host, from 0",
    "WORLD_SIZE": "ranks of the job",
    "LOCAL_WORLD_SIZE": "ranks of the host",
    "LOCAL_SIZE": "the same",
    "GROUP_RANK": "number of the host, from 0",
    "NODE_RANK": "the same",
    "CROSS_RANK": "the same",
    "CROSS_SIZE": "hosts of the job",
    "GROUP_WORLD_SIZE": "the same",
    "MASTER_ADDR": "address of rank 0",
    "MASTER_PORT": "port of rank 0",
    "CUDA_VISIBLE_DEVICES": "devices of the host's slots, where there are some",
    "OMP_NUM_THREADS": "threads of a rank, unless you set it",
    "ROLE_NAME": "torchrun's role, `default`",
    "ROLE_RANK": "as RANK",
    "ROLE_WORLD_SIZE": "as WORLD_SIZE",
    "TORCHELASTIC_RESTART_COUNT": "restarts so far",
    "TORCHELASTIC_MAX_RESTARTS": "the number of --max_restarts",
    "TORCHELASTIC_USE_AGENT_STORE": "False: rank 0 serves the store",
    "TORCHELASTIC_RUN_ID": "identity of the job",
    "TORCHELASTIC_ERROR_FILE": "file for the exception of `@record`",
    "DSRUN_JOB_ID": "identity of the job",
    "DSRUN_GENERATION": "number of the start of the ranks, from 0",
    "DSRUN_INTERFACE": "the value of --interface",
    "DSRUN_LEASE_SECONDS": "the value of --lease_seconds, on several hosts",
    "DSRUN_COLLECTIVE_TIMEOUT": "the value of --collective_timeout",
    "DSRUN_LINK_FD": "descriptor of the connection to the daemon",
}
READ = {
    "DS_ENV_FILE": "name of the environment file in place of .deepspeed_env",
    "DSRUN_INTERFACE": "default of --interface",
    "DSRUN_COLLECTIVE_TIMEOUT": "default of --collective_timeout, in seconds",
    "DEEPSPEED_TIMEOUT": "the same in minutes, if the other is not set",
    "DSRUN_LOG_LEVEL": "log level of all programs: debug, info, warning, error",
    "DSRUN_SAMPLE_LOG": "folder in which each rank logs the samples that it used",
    "DEEPSPEED_ELASTICITY_CONFIG": "elasticity section to be matched",
    "NCCL_SOCKET_IFNAME": "network of NCCL; --interface sets it otherwise",
    "ONEDNN_MAX_CPU_ISA": "instruction set of oneDNN; set without AMX",
    "KMP_AFFINITY": "refused together with --bind_cores_to_rank",
    "CUDA_VISIBLE_DEVICES": "GPUs that a job on this host may use",
    "LD_LIBRARY_PATH": "libraries of CUDA, for the GPU plugin",
    "PYTHONPATH": "passed to ranks on other hosts, with this folder",
    "OMP_NUM_THREADS": "threads of a rank",
    "WORLD_SIZE": "default of `dsrun elastic --world_size`",
    "NO_COLOR": "no colours on the terminal",
    "TERM": "`dumb`: no live line on the terminal",
    "HOME": "of ~/.ssh, ~/.deepspeed_env and the cache",
    "PATH": "where programs are found",
    "SHELL": "runs ProxyCommand and Match exec of ssh_config",
    "SSH_AUTH_SOCK": "the SSH agent",
    "XDG_CACHE_HOME": "parent of the cache of tokens (default: ~/.cache)",
    "XDG_RUNTIME_DIR": "parent of the folder of a job (default: /tmp)",
    "AISC_JOB_NAME": "keeps NCCL_IB_HCA and UCX_NET_DEVICES for other hosts",
}
SCHEDULERS = ("SLURM_", "PBS_", "PMI_", "OMPI_", "LSB_", "PE_", "NCPUS", "NHOSTS")  # read for one notice


class Drift(Exception):
    """Names in the sources and meanings here differ."""


def compare_names(kind, found, known):
    missing, unknown = sorted(set(found) - set(known)), sorted(set(known) - set(found))
    if missing or unknown:
        raise Drift(f"{kind}: without a meaning {missing or 'none'}; no longer in the sources {unknown or 'none'}")


def wrap(text, indent=""):
    return textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


# ---- dsrun's own manual page

def plain(troff):
    """The text that troff would show."""
    return re.sub(r"\\f[BIR]", "", troff).replace("\\-", "-").replace("\\e", "\\").replace("\\&", "").replace("\\(aq", "'")


def sections_of(manual, mark):
    """{title: lines} of the parts that begin with .SH or .SS."""
    parts = re.split(rf"^\.{mark} (.*)\n", manual, flags=re.MULTILINE)
    return {plain(title).strip('"'): body for title, body in zip(parts[1::2], parts[2::2])}


def paragraphs(text):
    """(head, meaning) of each .TP."""
    for part in text.split(".TP\n")[1:]:
        head, _, meaning = part.partition("\n")
        yield plain(head), " ".join(plain(meaning.split(".PP")[0]).split())


def flag_groups(text):
    """(heading, flags) of each group of flags. A heading is a paragraph in italics; the first group may have none."""
    parts = re.split(r"^\.PP\n\\fI(.*)\\fR\n", text, flags=re.MULTILINE)
    for heading, body in zip([None, *map(plain, parts[1::2])], parts[::2]):
        flags = list(paragraphs(body))
        if flags:
            yield heading, flags


def flag_blocks(text):
    """The lines of the page for the flags of `text`: a block of code for each group, below its heading."""
    for heading, flags in flag_groups(text):
        yield from ([f"### {heading}", ""] if heading else [])
        yield from (flag_lines(flags), "")


def flag_lines(flags):
    lines = []
    for head, meaning in flags:
        wrapped = textwrap.wrap(meaning, WIDTH - 4 - NAME_WIDTH, break_long_words=False, break_on_hyphens=False)
        for line in textwrap.wrap(head, WIDTH - 4, break_on_hyphens=False, subsequent_indent="  ")[:-1]:
            lines.append("    " + line)
        last = textwrap.wrap(head, WIDTH - 4, break_on_hyphens=False, subsequent_indent="  ")[-1]
        if len(last) < NAME_WIDTH - 1 and wrapped:
            lines.append("    " + last.ljust(NAME_WIDTH) + wrapped.pop(0))
        else:
            lines.append("    " + last)
        lines += [" " * (4 + NAME_WIDTH) + line for line in wrapped]
    return "\n".join(lines)


def make_flags(manual):
    parts = sections_of(manual, "SH")
    text = ["# flags: all flags of dsrun and of its commands", "",
            "This page is generated from the program. Launch flags stand before a command or",
            "a program; most commands take them after their name, too. Each flag may be",
            "written with `-` for `_`. A misspelled flag is refused with the nearest name:", "",
            "    $ dsrun --num_gpu 2 train; echo $?",
            "    dsrun: unknown flag --num_gpu; did you mean '--num_gpus'?", "    2", "",
            "## Launch flags", "", *flag_blocks(parts["LAUNCH FLAGS"])]
    for command, body in sections_of(parts["FLAGS OF COMMANDS"], "SS").items():
        usage, _, rest = body.partition(".PP\n")
        description = re.split(r"^\.[TP]P\n", rest, maxsplit=1, flags=re.MULTILINE)[0]
        text += [f"## {command}", "", wrap(f"Usage: `{plain(usage).strip()}`"), "",
                 wrap(" ".join(plain(description).split())), "", *flag_blocks(rest)]
    text += ["## Troubleshooting", "",
             table(("symptom", "cause and remedy"), (
                 ("`unknown flag`", "a typing error; the message has the nearest name"),
                 ("`is not supported: ...`", "a flag of another launcher; use the named one"),
                 ("a flag reaches the program", "it stands after the program: move it before"),
                 ("a flag contradicts the ds_config", "`dsrun help rates`")))]
    return "\n".join(text) + "\n"


def make_statuses(manual):
    rows = list(paragraphs(sections_of(manual, "SH")["EXIT STATUS"]))
    lines = []
    for head, meaning in rows:
        status, _, distinct = head.partition(", ")
        wrapped = textwrap.wrap(meaning, WIDTH - 16)
        lines.append(f"    {status:<5} {distinct or status:<5} {wrapped[0]}")
        lines += [" " * 16 + line for line in wrapped[1:]]
    return f"""# statuses: exit statuses of dsrun

This page is generated from the program. When a rank fails, the job ends with
the status of that rank, or with 128 + N when signal N killed it:

    $ dsrun --num_gpus 2 run -- sh -c 'exit 7'; echo $?
    dsrun: the job failed: rank ... on localhost ended with status 7
    ...
    7

Otherwise dsrun sets the status. The second number is used with
`--exit_codes distinct`, which separates statuses of dsrun from those of
programs:

{chr(10).join(lines)}

With `--exit_codes distinct` a program's own status of 240 to 247 becomes 240;
`verdict.json` has the original number.

    $ dsrun --exit_codes distinct train --model nothing; echo $?
    dsrun: --model nothing: no such folder, config.json or preset ...
    242

## Troubleshooting

{table(("symptom", "cause and remedy"), (
    ("137 (128 + 9)", "SIGKILL: often out of memory; see the verdict"),
    ("139 (128 + 11)", "SIGSEGV: a crash of the program"),
    ("134 (128 + 6)", "abort: the last lines have the reason"),
    ("143 (128 + 15)", "SIGTERM: the user or a scheduler stopped the job"),
    ("127, 126", "a shell script did not find a command, or may not run it"),
    ("2 from a program", "`--exit_codes distinct` separates it from dsrun's")))}
"""


# ---- names in the sources

def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def make_metrics():
    source = read("runtime/engine/report/step_metrics.cc")
    to_json = source[source.index("ToJson(const StepMetrics"):source.index("void AddPhases")]
    found = re.findall(r'\{"(\w+)", ', to_json) + re.findall(r'\(\*metrics\)\["(\w+)"\]', source)
    compare_names("metrics", found, METRICS)
    phases = re.findall(r'\{"(\w+)", seconds\.', source)
    ledger = read("runtime/device/memory_ledger.cc")
    names = re.findall(r'return "(\w+)";', ledger)
    compare_names("memory", names, {**MEMORY, **TIERS})
    traffic = re.findall(r'return "(\w+)";', read("runtime/comm/traffic.cc"))
    rows = [(f"`{name}`", *METRICS[name]) for name in dict.fromkeys(found)]
    return f"""# metrics: the fields of metrics.jsonl

This page is generated from the sources. `RUN_DIR/metrics.jsonl` has one JSON
object for each optimizer step. Restarts and resumes append to it. Numbers are
printed with full precision; a number that is not finite is null.

    $ dsrun --num_gpus 2 --run_dir runs/m train --steps 2
    step 2/2  loss 5.5451  35591 tokens/s  222 MiB/rank
    ...

    $ tail -n 1 runs/m/metrics.jsonl | cut -c 1-60
    {{"step":2,"loss":...,"grad_norm":...

## Fields

{table(("field", "type", "meaning"), rows)}

## communicated

{wrap("Each collective that was called in the step has `calls` and `bytes` of rank 0: " + ", ".join(f"`{name}`" for name in traffic) + ".")}
`between_hosts` has the bytes `sent` and `received` on connections of CPU ranks.

## memory

Uses, each with the tiers that it occupies, each with `bytes` now and `peak`:

{table(("use", "meaning"), [(f"`{name}`", text) for name, text in MEMORY.items()])}

{table(("tier", "meaning"), [(f"`{name}`", text) for name, text in TIERS.items()])}

`tensors` has all tensors of the device, `resident_bytes` and
`peak_resident_bytes` the process. The first step has `planned`, the plan of the
job. `breakdown` has the phases, with `memory_breakdown`.

## phase_seconds

{wrap("With `wall_clock_breakdown`: " + ", ".join(f"`{name}`" for name in phases) + ".")}

## Troubleshooting

{table(("symptom", "cause and remedy"), (
    ("a step is there twice", "a restart repeated it: the later line counts"),
    ("`loss` is null", "not finite: `dsrun help failures`"),
    ("`data_seconds` is large", "tokenize once: `dsrun tokenize`"),
    ("`skipped` is often true", "fp16: the loss scale falls; try bf16"),
    ("no `eval_loss`", "the step was not evaluated: `--eval_every`")))}
"""


def variables_read():
    """Names of environment variables that the programs read."""
    patterns = (r'getenv\("([A-Z]\w+)"', r'Read(?:Integer|Text|Time)Variable\("([A-Z]\w+)"',
                r'Find(?:Rank)?Variable\([^;"]*"([A-Z]\w+)"\)', r'\bValue\(\w+, "([A-Z]\w+)"\)',
                r'FindEnvironmentValue\("([A-Z]\w+)"\)',
                r'constexpr (?:char|std::string_view|const char\*)(?: const)? k\w*(?:Variable|Threads|Elasticity)\w*(?:\[\])? ?= ?"([A-Z]\w+)"')
    found = set()
    for path in tracked("cli/*.cc", "cli/*.h", "daemon/*.cc", "daemon/*.h", "runtime/*.cc", "runtime/*.h"):
        text = read(path)
        for pattern in patterns:
            found |= {name for name in re.findall(pattern, text) if not name.startswith(SCHEDULERS)}
    return found


def variables_set():
    source = read("cli/launch/environment.cc")
    own = re.findall(r'\{"([A-Z]\w+)",', source) + re.findall(r'emplace_back\(\s*"([A-Z]\w+)"', source)
    return own + re.findall(r'variables\["([A-Z]\w+)"\]', read("daemon/ranks/rank_command.cc")) + ["DSRUN_LINK_FD"]


def make_environment():
    compare_names("variables of ranks", variables_set(), SET)
    # A rank reads the variables that dsrun sets; users set the others.
    found = variables_read()
    compare_names("variables", found - (set(SET) - set(READ)), READ)
    source = read("cli/launch/environment.cc")
    prefixes = re.findall(r'"(\w+)"', source[source.index("kRemotePrefixes = {"):source.index("};", source.index("kRemotePrefixes"))])
    return f"""# environment: variables of ranks and of dsrun

This page is generated from the sources.

## Set for every rank

    $ dsrun --num_gpus 2 --log_ranks 1 run -- sh -c 'echo $RANK of $WORLD_SIZE'
    1@localhost: 1 of 2

{table(("variable", "value"), [(f"`{name}`", text) for name, text in SET.items()])}

## Read by dsrun and its ranks

{table(("variable", "effect"), [(f"`{name}`", text) for name, text in READ.items()])}

Variables of schedulers (`SLURM_*`, `PBS_*`, `LSB_*`, `PE_HOSTFILE`, ...) are
read for one notice: see `dsrun help hosts`.

## Passed to other hosts

Ranks on this host inherit the environment of dsrun. Ranks on other hosts get
their host's own, and the variables of dsrun that begin with:

{wrap(", ".join(prefixes), "    ")}

`-x NAME`, `-x NAME=VALUE` and `--env_file FILE` add others: see
`dsrun help hosts`.

## Troubleshooting

{table(("symptom", "cause and remedy"), (
    ("a variable is missing on a host", "`-x NAME`"),
    ("`is not set in this shell`", "export it first, or `-x NAME=VALUE`"),
    ("a value has `$NAME` in it", "nothing is expanded: write it out"),
    ("RANK of an environment file", "has no effect; a notice says so"),
    ("each rank takes all cores", "`-x OMP_NUM_THREADS=1`")))}
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", required=True, type=pathlib.Path, help="folder of dsrun")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    manual = subprocess.run([options.bin / "dsrun", "help", "--man"], capture_output=True, text=True, check=True).stdout
    try:
        pages = {"flags": make_flags(manual), "statuses": make_statuses(manual), "metrics": make_metrics(),
                 "environment": make_environment()}
    except Drift as drift:
        print(f"make_references: {drift}: edit scripts/make_references.py")
        return 1
    status = 0
    for name, text in pages.items():
        path = PAGES / f"{name}.md"
        text = "\n".join(line.rstrip() for line in text.split("\n"))
        if not options.check:
            path.write_text(text, encoding="utf-8")
        elif (old := path.read_text(encoding="utf-8")) != text:
            status = 1
            sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), text.splitlines(True), str(path), "generated"))
            print(f"{path.relative_to(ROOT)} is out of date: scripts/make_references.py --bin {options.bin}")
    return status


if __name__ == "__main__":
    sys.exit(main())
