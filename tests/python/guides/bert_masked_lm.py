"""A masked language model as in DeepSpeed's HelloDeepSpeed: a loop with checkpoints and their client state."""

import argparse
import json
import os

import deepspeed
import torch
from transformers import BertConfig, BertForMaskedLM


def batches(rank, mask):
    generator = torch.Generator().manual_seed(5 + rank)
    while True:
        tokens = torch.randint(4, 64, (4, 16), generator=generator)
        chosen = torch.rand(4, 16, generator=generator) < 0.3
        chosen[:, 0] = True
        yield {"input_ids": tokens.masked_fill(chosen, mask), "attention_mask": torch.ones_like(tokens),
               "labels": tokens.masked_fill(~chosen, -100)}


def make_model():
    torch.manual_seed(0)
    return BertForMaskedLM(BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint_dir", required=True)
    parser.add_argument("--stage", type=int, default=1)
    parser.add_argument("--num_iterations", type=int, default=6)
    parser.add_argument("--local_rank", type=int, default=-1)
    args = parser.parse_args()
    deepspeed.init_distributed()
    ds_config = {
        "train_micro_batch_size_per_gpu": 4,
        "optimizer": {"type": "Adam", "params": {"lr": 1e-3}},
        "zero_optimization": {"stage": args.stage, "offload_optimizer": {"device": "cpu"}}}
    model, _, _, _ = deepspeed.initialize(model=(raw := make_model()), model_parameters=raw.parameters(),
                                          config=ds_config)
    rank = torch.distributed.get_rank()
    losses = []
    for step, batch in enumerate(batches(rank, mask=3), start=1):
        if step > args.num_iterations:
            break
        for key, value in batch.items():
            batch[key] = value.to(model.device)
        loss = model(**batch).loss
        model.backward(loss)
        model.step()
        losses.append(loss.item())
        if rank == 0:
            print("LOG", json.dumps({"step": step, "loss": sum(losses) / len(losses)}), flush=True)
        if step == 4:
            model.save_checkpoint(save_dir=args.checkpoint_dir, client_state={"checkpoint_step": step})
    path, client_state = model.load_checkpoint(load_dir=args.checkpoint_dir)
    loss = model(**next(batches(9, mask=3))).loss
    model.backward(loss)
    model.step()
    if rank == 0:
        print("LOG", json.dumps({"loaded": client_state["checkpoint_step"], "steps": model.global_steps,
                                 "loss": loss.item(), "found": os.path.exists(path)}), flush=True)


if __name__ == "__main__":
    main()
