"""A training loop of Accelerate: accumulation, clipping, a scheduler, evaluation, save_state and
load_state, get_state_dict.

Options: config_optimizer (DummyOptim and DummyScheduler).
"""

import os
import tempfile

from libraries import OPTIONS, ds_config, log, make_llama

import torch
from accelerate import Accelerator
from accelerate.utils import DeepSpeedPlugin, DummyOptim, DummyScheduler, set_seed


def batches(first, count):
    generator = torch.Generator().manual_seed(first)
    return [torch.randint(3, 64, (16,), generator=generator) for _ in range(count)]


def make_parts(model):
    if "config_optimizer" in OPTIONS:
        optimizer = DummyOptim(model.parameters(), lr=2e-3, weight_decay=0.02)
        return optimizer, DummyScheduler(optimizer, total_num_steps=12, warmup_num_steps=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.02)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    return optimizer, scheduler


def train(accelerator, model, optimizer, scheduler, loader, steps):
    for index, tokens in zip(range(steps), loader):
        with accelerator.accumulate(model):
            loss = model(input_ids=tokens, labels=tokens).loss
            accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        mean = accelerator.gather(loss.detach()).mean().item()
        record = {"loss": mean, "lr": scheduler.get_last_lr()[0]}
        if accelerator.sync_gradients:
            record["norm"] = float(norm)
        log(record)


def main():
    sections = {}
    if "config_optimizer" in OPTIONS:
        sections = {"optimizer": {"type": "AdamW",
                                  "params": {"lr": "auto", "weight_decay": "auto"}},
                    "scheduler": {"type": "WarmupLR", "params": {
                        "warmup_min_lr": "auto", "warmup_max_lr": "auto",
                        "warmup_num_steps": "auto"}}}
    plugin = DeepSpeedPlugin(hf_ds_config=ds_config(**sections) | {"gradient_clipping": 0.6})
    accelerator = Accelerator(deepspeed_plugin=plugin, gradient_accumulation_steps=2)
    set_seed(3)
    model = make_llama()
    loader = torch.utils.data.DataLoader(batches(1, 64), batch_size=2)
    parts = accelerator.prepare(model, *make_parts(model), loader)
    model, optimizer, scheduler, loader = parts
    train(accelerator, model, optimizer, scheduler, loader, 6)
    folder = os.path.join(tempfile.gettempdir(), f"accelerate_loop.{os.environ['MASTER_PORT']}")
    accelerator.save_state(folder)
    train(accelerator, model, optimizer, scheduler, loader, 4)
    accelerator.load_state(folder)
    train(accelerator, model, optimizer, scheduler, loader, 4)
    model.eval()
    tokens = torch.stack(batches(77, 2))
    with torch.no_grad():
        log({"eval_loss": model(input_ids=tokens, labels=tokens).loss.item()})
    state = accelerator.get_state_dict(model)
    if accelerator.is_main_process:
        log({"weights": sum(value.double().abs().sum().item() for value in state.values())})


if __name__ == "__main__":
    main()
