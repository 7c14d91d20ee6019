"""Checkpoints of an engine, loaded with the options of load_checkpoint into engines that have other
weights and another past. Logs the losses of the steps after each load."""

import os
import tempfile

import torch
from libraries import ds_config, log, make_llama

import deepspeed

deepspeed.init_distributed("gloo")
RANK = torch.distributed.get_rank()


def make_engine(seed):
    """An engine with frozen embeddings, whose schedule warms up over ten steps."""
    model = make_llama(seed)
    model.model.embed_tokens.weight.requires_grad_(False)
    optimizer = {"type": "AdamW", "params": {"lr": 5e-3, "weight_decay": 0.01, "torch_adam": True}}
    schedule = {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 5e-3,
                                               "warmup_num_steps": 10, "warmup_type": "linear"}}
    config = ds_config(optimizer=optimizer, scheduler=schedule, gradient_clipping=0.5)
    config |= {"train_micro_batch_size_per_gpu": 2, "train_batch_size": 4,
               "gradient_accumulation_steps": 1}
    config["zero_optimization"] = {"stage": config["zero_optimization"]["stage"]}
    parameters = [p for p in model.parameters() if p.requires_grad]
    engine, *_ = deepspeed.initialize(model=model, model_parameters=parameters, config=config)
    return engine


def train(engine, steps, first=0):
    losses = []
    for step in range(first, first + steps):
        generator = torch.Generator().manual_seed(100 * step + RANK)
        tokens = torch.randint(3, 64, (2, 12), generator=generator)
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses


LOADS = {
    "all": {},
    "no_optimizer": {"load_optimizer_states": False},
    "no_schedule": {"load_lr_scheduler_states": False},
    # At stage 3, DeepSpeed loads weights alone only if it need not load the optimizer's state.
    "module": {"load_module_only": True, "load_optimizer_states": False},
}


def main():
    folders = [tempfile.mkdtemp()]
    torch.distributed.broadcast_object_list(folders, 0)
    saved = make_engine(1)
    train(saved, 3)
    saved.save_checkpoint(folders[0], tag="trained", exclude_frozen_parameters=True)
    saved.save_checkpoint(folders[0], tag="all", client_state={"epoch": 4})
    saved.destroy()
    for name, options in LOADS.items():
        engine = make_engine(2)
        train(engine, 1, first=7)
        path, client = engine.load_checkpoint(folders[0], tag="all", **options)
        assert os.path.basename(os.path.dirname(path)) == "all" or path.endswith("all"), path
        assert client["epoch"] == 4, client
        losses = train(engine, 3, first=10)
        log({f"{name} {i}": loss for i, loss in enumerate(losses)} |
            {f"{name} steps": engine.global_steps})
        engine.destroy()
    engine = make_engine(2)
    engine.load_checkpoint(folders[0], tag="trained", load_module_strict=False)
    log({f"trained {i}": loss for i, loss in enumerate(train(engine, 3, first=10))})


if __name__ == "__main__":
    main()
