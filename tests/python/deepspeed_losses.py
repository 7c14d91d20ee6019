"""Trains models with `import deepspeed`, which is dsrun.compat or DeepSpeed itself, one case after
another (loss_cases.py).

    deepspeed_losses.py ENGINE FOLDER CASE ...                on two ranks
    deepspeed_losses.py ENGINE FOLDER --resume CASE ...       on other numbers of them

ENGINE is dsrun or deepspeed. The ranks share FOLDER. Each rank writes there the losses and norms of its
steps, as rank<N>.json or resumed<N>.json. Cases that are resumed leave checkpoints, which --resume loads.
"""

import json
import os
import pathlib
import sys

import torch
from loss_cases import STEPS, STEPS_BEFORE_RESUME, make_config, resumed_ranks, split
from models import loss_of, make_batch, make_model

torch.set_num_threads(1)
ENGINE, FOLDER, *CHOSEN = sys.argv[1:]
if ENGINE == "dsrun":
    import dsrun.compat
    dsrun.compat.install()
import deepspeed  # noqa: E402

RANK = int(os.environ["RANK"])
RANKS = int(os.environ["WORLD_SIZE"])
WRITTEN_BY = 2  # ranks have batches of their own as if there were two


def batch_of_rank(name, step):
    """This rank's share of the batches of two ranks."""
    if RANKS == WRITTEN_BY:
        return make_batch(name, RANK, step)
    both = [make_batch(name, rank, step) for rank in range(WRITTEN_BY)]
    return {key: torch.cat([batch[key] for batch in both]).chunk(RANKS)[RANK] for key in both[0]}


def to_dtype(batch, dtype):
    return {key: value.bfloat16() if dtype == "bf16" and torch.is_tensor(value)
            and value.is_floating_point() else value for key, value in batch.items()}


def give_scalars_a_dimension(model):
    """DeepSpeed broadcasts no parameters without one on the CPU: CLIP's logit_scale."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.dim() == 0:
                setattr(module, name, torch.nn.Parameter(parameter.detach().view(1)))


def train(engine, case, steps):
    name, _, dtype, _ = split(case)
    losses, norms = [], []
    for step in steps:
        micro_losses = []
        for micro in range(engine.gradient_accumulation_steps()):
            batch = to_dtype(batch_of_rank(name, step * 10 + micro), dtype)
            loss = loss_of(engine(**batch))
            engine.backward(loss)
            engine.step()
            micro_losses.append(loss.item())
        losses.append(sum(micro_losses) / len(micro_losses))
        norm = engine.get_global_grad_norm()
        norms.append(None if norm is None else float(norm))
    return {"losses": losses, "norms": norms}


def run(case, is_resumed):
    model, config = make_model(split(case)[0]), make_config(case, FOLDER, RANKS)
    if ENGINE == "deepspeed":
        give_scalars_a_dimension(model)
        config["checkpoint"] = {"load_universal": is_resumed}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    steps = range(STEPS_BEFORE_RESUME if resumed_ranks(case) else STEPS)
    checkpoint = os.path.join(FOLDER, case.replace(" ", "_").rpartition("_resume")[0])
    if is_resumed:
        tag = "universal" if ENGINE == "deepspeed" else "saved"
        path, _ = engine.load_checkpoint(checkpoint, tag=tag)
        if path is None:
            raise FileNotFoundError(checkpoint)
        steps = range(STEPS_BEFORE_RESUME, STEPS)
    result = train(engine, case, steps)
    if resumed_ranks(case) and not is_resumed:
        engine.save_checkpoint(checkpoint, tag="saved")
    engine.destroy()
    return result


def main():
    deepspeed.init_distributed("gloo")
    is_resumed = CHOSEN[0] == "--resume"
    cases = CHOSEN[1:] if is_resumed else CHOSEN
    written = pathlib.Path(FOLDER, f"{'resumed' if is_resumed else 'rank'}{RANK}.json")
    results = {}
    for case in cases:
        results[case] = run(case, is_resumed)
        written.write_text(json.dumps(results))
    torch.distributed.barrier()
    if ENGINE == "deepspeed":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
