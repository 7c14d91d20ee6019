"""One rank of a training run in Python: PyTorch DDP, FSDP2, DeepSpeed or dsrun's package, on the folder, token file and ds_config
that dsrun gets. Started by scripts/bench/train through torchrun.

Every rank writes {"rank", "first_step_at", "losses", "step_seconds", "tokens_per_step", "peak_rss"} as JSON
to OUT.<rank>.
"""

import argparse
import json
import os
import resource
import time

import numpy
import torch
import torch.distributed as dist
import torch.nn.functional as F
from transformers import AutoModelForCausalLM


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", choices=["ddp", "fsdp2", "deepspeed", "python"], required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--ds_config", required=True)
    parser.add_argument("--starts", help="uint8 of each token, 1 at the first of a document; without it, a sample is one")
    parser.add_argument("--seq_len", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--local_rank", type=int, default=0)
    return parser.parse_args()


def positions_of(starts):
    """The position of each token in its document, [B, S]; transformers finds the documents by them."""
    indices = torch.arange(starts.size(1)).expand_as(starts)
    return indices - torch.where(starts, indices, 0).cummax(1).values


def batches(tokens, starts, seq_len, micro_batch, rank, world):
    """dsrun's --no_shuffle order: micro-step m on rank r uses samples (m*W + r)*B + 0..B-1."""
    def rows_of(numbers):
        rows = [numbers[(i % samples) * seq_len:(i % samples) * seq_len + seq_len + 1]
                for i in range(first, first + micro_batch)]
        return torch.from_numpy(numpy.stack(rows).astype(numpy.int64))

    samples = (len(tokens) - 1) // seq_len
    micro_step = 0
    while True:
        first = (micro_step * world + rank) * micro_batch
        block = rows_of(tokens)
        inputs, labels = {"input_ids": block[:, :-1].clone()}, block[:, 1:].clone()
        if starts is not None:
            begins = rows_of(starts).bool()
            inputs["position_ids"] = positions_of(begins[:, :-1])
            labels.masked_fill_(begins[:, 1:], -100)
        yield inputs, labels
        micro_step += 1


def loss_of(model, inputs, labels):
    logits = model(**inputs, use_cache=False).logits
    return F.cross_entropy(logits.view(-1, logits.size(-1)).float(), labels.view(-1))


def is_bf16(config):
    return config.get("bf16", {}).get("enabled", False)


def torch_step(forward, model, config):
    """A step of PyTorch's own loop: `forward` is the model as it is called, `model` has the parameters."""
    options = config["optimizer"]["params"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=options["lr"], betas=options["betas"],
                                  eps=options["eps"], weight_decay=options["weight_decay"], fused=True)

    def step(inputs, labels):
        optimizer.zero_grad(set_to_none=True)
        loss = forward(inputs, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), config["gradient_clipping"])
        optimizer.step()
        return loss.item()

    return step


def ddp_step(model, config):
    replica = torch.nn.parallel.DistributedDataParallel(model)

    def forward(inputs, labels):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_bf16(config)):
            return loss_of(replica, inputs, labels)

    return torch_step(forward, model, config)


def fsdp2_step(model, config):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    options = {"mesh": init_device_mesh("cpu", (dist.get_world_size(),))}
    if is_bf16(config):
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    base = model.base_model
    for layer in getattr(base, "h", None) or base.layers:
        fully_shard(layer, **options)
    fully_shard(model, **options)
    return torch_step(lambda inputs, labels: loss_of(model, inputs, labels), model, config)


def engine_step(library, model, config):
    engine, _, _, _ = library.initialize(model=model, model_parameters=model.parameters(), config=config)

    def step(inputs, labels):
        loss = loss_of(engine, inputs, labels)
        engine.backward(loss)
        engine.step()
        return loss.item()

    return step


def deepspeed_step(model, config):
    import deepspeed

    return engine_step(deepspeed, model, config)


def dsrun_step(model, config):
    import dsrun

    return engine_step(dsrun, model, config)


def main():
    options = parse()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    if options.peer == "deepspeed":
        import deepspeed

        deepspeed.init_distributed("gloo")
    else:
        dist.init_process_group("gloo")
    with open(options.ds_config, encoding="utf-8") as file:
        config = json.load(file)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    model.train()
    make = {"ddp": ddp_step, "fsdp2": fsdp2_step, "deepspeed": deepspeed_step, "python": dsrun_step}[options.peer]
    step = make(model, config)

    tokens = numpy.memmap(options.data, dtype=numpy.uint16, mode="r")
    micro_batch = config["train_micro_batch_size_per_gpu"]
    starts = numpy.memmap(options.starts, dtype=numpy.uint8, mode="r") if options.starts else None
    feed = batches(tokens, starts, options.seq_len, micro_batch, rank, world)
    losses, seconds, first_step_at = [], [], None
    for _ in range(options.steps):
        inputs, labels = next(feed)
        dist.barrier()
        begin = time.monotonic()
        losses.append(step(inputs, labels))
        seconds.append(time.monotonic() - begin)
        first_step_at = first_step_at or time.time()

    with open(f"{options.out}.{rank}", "w", encoding="utf-8") as file:
        json.dump({
            "rank": rank,
            "first_step_at": first_step_at,
            "losses": losses,
            "step_seconds": seconds,
            "tokens_per_step": micro_batch * options.seq_len * world,
            "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
