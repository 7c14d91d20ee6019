#!/usr/bin/env python3
"""Runs expert_ranks.py on two and on four ranks.

    expert_ranks_test.py --bin DIR [--python PATH]      as trainers_test.py
"""

import sys

from symbols_test import run
from trainers_test import parse_options


def main():
    options = parse_options()
    failed = 0
    for ranks in (2, 4):
        status, output = run(options, "expert_ranks", ranks)
        print(f"{ranks} ranks: status {status}\n{output}")
        failed += status != 0 or "check_refusals ok" not in output
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
