"""Records the logs of cases for the make_*_goldens.py that run scripts of tests/python under DeepSpeed."""

import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/python"))
from trainer_cases import read_log  # noqa: E402


def run(case, command, folder, environment):
    """Runs the command of a case and returns the records that it has printed; exits if it fails."""
    result = subprocess.run(command, cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if result.returncode != 0:
        sys.exit(f"{case}: status {result.returncode}\n{result.stdout}")
    return read_log(result.stdout)


def update(path, cases, record):
    """Writes record(case) of each case to the goldens, a file of JSON; others keep their records."""
    goldens = json.loads(path.read_text()) if path.exists() else {}
    path.parent.mkdir(exist_ok=True)
    for case in cases:
        print(case, flush=True)
        goldens[case] = record(case)
        lines = [json.dumps(name) + ": [\n  " + ",\n  ".join(json.dumps(entry) for entry in goldens[name]) + "]"
                 for name in sorted(goldens)]
        path.write_text("{" + ",\n".join(lines) + "}\n")
