"""Trains the Llama of a `dsrun train` run further, on the samples of that run, in their order.

    check_round_trip.py MODEL TOKENS CONFIG STAGE LENGTH RUN STEPS

Loads RUN/checkpoints, trains STEPS steps, prints a line "loss N X" for each, and saves to RUN/checkpoints. A schedule of
the script has no state there.
"""

import json
import pathlib
import sys

import numpy
import torch
import transformers

import dsrun


def check_schedule_of_script(model, config, run):
    del config["scheduler"]
    engine, *_ = dsrun.initialize(model=transformers.LlamaForCausalLM.from_pretrained(model), config=config,
                                  lr_scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1))
    try:
        engine.load_checkpoint(run, tag="checkpoints")
        raise AssertionError("a schedule of the script has no state in a checkpoint of dsrun train")
    except ValueError as error:
        assert "has no state for StepLR of the script" in str(error) and engine.global_steps == 0, error
    engine.load_checkpoint(run, tag="checkpoints", load_lr_scheduler_states=False)
    assert engine.global_steps == 2 and engine.lr_scheduler.last_epoch == 0 and engine.get_lr() == [1e-2]
    engine.destroy()


def main():
    model, tokens, config, stage, length, run, steps = sys.argv[1:]
    config = {**json.loads(pathlib.Path(config).read_text()), "zero_optimization": {"stage": int(stage)}}
    length = int(length)
    tokens = torch.from_numpy(numpy.fromfile(tokens, numpy.uint16).astype(numpy.int64))
    check_schedule_of_script(model, dict(config), run)
    engine, *_ = dsrun.initialize(model=transformers.LlamaForCausalLM.from_pretrained(model), config=config)
    assert engine.load_checkpoint(run, tag="checkpoints") == (f"{run}/checkpoints", {})
    rank, ranks = dsrun.comm.get_rank(), dsrun.comm.get_world_size()
    micro = engine.train_micro_batch_size_per_gpu()
    position = engine.global_samples
    for _ in range(int(steps)):
        for _ in range(engine.gradient_accumulation_steps()):
            first = position + rank * micro
            rows = torch.stack([tokens[i * length:(i + 1) * length + 1] for i in range(first, first + micro)])
            logits = engine(rows[:, :-1]).logits
            engine.backward(torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()))
            engine.step()
            position += micro * ranks
        if rank == 0:
            print(f"loss {engine.global_steps} {engine.step_result.loss!r}", flush=True)
    assert engine.global_samples == position
    engine.save_checkpoint(run, tag="checkpoints")


if __name__ == "__main__":
    main()
