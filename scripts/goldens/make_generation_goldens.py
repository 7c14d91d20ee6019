#!/usr/bin/env python3
"""Makes the goldens of tests/unit/inference/goldens with transformers.

    python scripts/goldens/make_generation_goldens.py tests/numerics/goldens tests/unit/inference/goldens

Needs torch 2.11 and transformers 5 from PyPI.

sampling.json: logits, and what transformers' logits processors make of them: null is a token that is
ruled out.

texts.json: per folder of tests/numerics/goldens/families the tokens that `generate` gives behind
prompts of unequal lengths, each generated alone, greedily and with a repetition penalty. Where angles
follow the length of a sequence it runs without a cache: with one, transformers keeps keys that were
turned for a shorter sequence.
"""

import json
import pathlib
import sys

import torch
import transformers
from transformers.generation.logits_process import (
    RepetitionPenaltyLogitsProcessor, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)

from make_family_goldens import FOLLOW_LENGTH, MODELS

PROMPT_LENGTHS = (3, 11, 20)
NEW_TOKENS = 24
PENALTY = 1.3


def processors():
    return {
        "repetition_penalty": (RepetitionPenaltyLogitsProcessor, (1.3, 0.8)),
        "temperature": (TemperatureLogitsWarper, (0.7, 2.5)),
        "top_k": (TopKLogitsWarper, (1, 5, 100)),
        "top_p": (TopPLogitsWarper, (0.05, 0.6, 0.95)),
    }


def rows(scores):
    return [None if value == float("-inf") else value for value in scores[0].tolist()]


def make_sampling():
    generator = torch.Generator().manual_seed(7)
    cases = []
    for spread in (1.0, 4.0):
        logits = torch.randn(1, 40, generator=generator) * spread
        logits[0, 7] = logits[0, 3]  # as likely as another
        seen = torch.randint(0, 40, (1, 12), generator=generator)
        for name, (kind, values) in processors().items():
            for value in values:
                out = kind(value)(seen, logits.clone())
                cases.append({"name": name, "value": value, "seen": seen[0].tolist(),
                              "logits": rows(logits), "out": rows(out)})
    return cases


def load(folder, name):
    attention = "sdpa" if name == "falcon_rw" else "eager"
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder / name, attn_implementation=attention, dtype=torch.float32).eval()


def make_texts(folder, name, tokens):
    texts = []
    for i, length in enumerate(PROMPT_LENGTHS):
        prompt = tokens[40 * i : 40 * i + length].unsqueeze(0)
        text = {"prompt": prompt[0].tolist()}
        for kind, penalty in (("greedy", 1.0), ("penalised", PENALTY)):
            # A model of its own: transformers' remembers the longest sequence that it has turned.
            out = load(folder, name).generate(
                prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                repetition_penalty=penalty, max_new_tokens=NEW_TOKENS, pad_token_id=0,
                use_cache=name not in FOLLOW_LENGTH)
            text[kind] = out[0, length:].tolist()
        texts.append(text)
    return texts


def main():
    source, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    data = torch.frombuffer(bytearray((source / "tokens.bin").read_bytes()), dtype=torch.int16).long()
    (out / "sampling.json").write_text(json.dumps(make_sampling()) + "\n")
    with torch.no_grad():
        texts = {name: make_texts(source / "families", name, data) for name in MODELS}
    golden = {"new_tokens": NEW_TOKENS, "penalty": PENALTY, "texts": texts}
    lines = json.dumps(golden).replace('"prompt"', '\n"prompt"')
    (out / "texts.json").write_text(lines + "\n")


if __name__ == "__main__":
    main()
