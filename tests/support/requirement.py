"""Requirements of tests that are Python programs: what requirement.h is for those in C++.

Without a requirement a test skips itself; where DSRUN_REQUIRE names it, the skip is a failure. requirement.h has the
words.
"""

import os
import sys
import unittest
from typing import NoReturn

SKIPPED = 77  # the SKIP_RETURN_CODE of the entries in CMakeLists.txt


def is_required(requirement: str) -> bool:
    """Says whether DSRUN_REQUIRE names it."""
    return requirement in os.environ.get("DSRUN_REQUIRE", "").split(",")


def skip_status(requirement: str, why: str, subject: str = "") -> int:
    """Prints why a test, or the subject in it, is skipped, and returns the status of that: 77, or 1 for a failure."""
    required = is_required(requirement)
    reason = f"DSRUN_REQUIRE names {requirement}, but: {why}" if required else why
    print(f"{'FAILED' if required else 'SKIPPED'}{subject and ' ' + subject}: {reason}", flush=True)
    return 1 if required else SKIPPED


def exit_without(requirement: str, why: str) -> NoReturn:
    """Ends the program as a skipped test."""
    sys.exit(skip_status(requirement, why))


def skip_without(test: unittest.TestCase, requirement: str, why: str) -> None:
    """Skips a test of unittest from within."""
    if is_required(requirement):
        test.fail(f"DSRUN_REQUIRE names {requirement}, but: {why}")
    test.skipTest(why)
