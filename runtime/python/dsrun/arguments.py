"""The command line of scripts: DeepSpeed's arguments for argparse."""

from __future__ import annotations

import argparse


def add_config_arguments(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Adds --deepspeed and --deepspeed_config, which initialize(args=...) reads."""
    group = parser.add_argument_group("DeepSpeed", "training with ZeRO")
    group.add_argument("--deepspeed", action="store_true",
                       help="for the script itself: initialize() trains with or without it")
    group.add_argument("--deepspeed_config", help="path of a ds_config")
    return parser
