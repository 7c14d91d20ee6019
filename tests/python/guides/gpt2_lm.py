"""GPT-2 trained as a language model on windows of a text, evaluated by its perplexity and saved for transformers."""

import argparse
import json
import math
import os

import deepspeed
import torch
from transformers import GPT2Config, GPT2LMHeadModel

DS_CONFIG = {
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 5e-3, "betas": [0.9, 0.95], "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 8, "warmup_num_steps": 2}},
    "zero_optimization": {"stage": 2, "overlap_comm": True, "contiguous_gradients": True,
                          "stage3_gather_16bit_weights_on_model_save": True}}
CONFIG = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
                    attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)


class Windows(torch.utils.data.Dataset):
    """A text in which a token follows from the one before, but for some noise, in windows of equal length."""

    def __init__(self, count, seed, length=16):
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randint(3, (count * length,), generator=generator)
        self.windows = ((noise + 5).cumsum(0) % CONFIG.vocab_size).view(count, length)

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, index):
        return self.windows[index]


@torch.no_grad()
def evaluate(model, device):
    """The perplexity of another text."""
    model.eval()
    tokens = torch.stack(list(Windows(8, seed=2))).to(device)
    loss = model(input_ids=tokens, labels=tokens).loss
    model.train()
    return math.exp(loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--stage", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--local_rank", type=int, default=-1)
    args = parser.parse_args()
    DS_CONFIG["zero_optimization"]["stage"] = args.stage
    deepspeed.init_distributed()
    torch.manual_seed(0)
    model = GPT2LMHeadModel(CONFIG)
    engine, _, loader, scheduler = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), training_data=Windows(32, seed=1), config=DS_CONFIG)
    first = torch.distributed.get_rank() == 0
    for epoch in range(args.epochs):
        for tokens in loader:
            tokens = tokens.to(engine.device)
            loss = engine(input_ids=tokens, labels=tokens).loss
            engine.backward(loss)
            engine.step()
            if first:
                print("LOG", json.dumps({"epoch": epoch, "loss": loss.item(), "lr": scheduler.get_last_lr()[0],
                                         "steps": engine.global_steps}), flush=True)
        perplexity = evaluate(engine, engine.device)
        if first:
            print("LOG", json.dumps({"epoch": epoch, "perplexity": perplexity}), flush=True)
    engine.save_16bit_model(args.output_dir, "pytorch_model.bin")
    torch.distributed.barrier()
    if first:
        saved = GPT2LMHeadModel(CONFIG)
        saved.load_state_dict(torch.load(os.path.join(args.output_dir, "pytorch_model.bin"), weights_only=True))
        print("LOG", json.dumps({"saved_perplexity": evaluate(saved, "cpu")}), flush=True)


if __name__ == "__main__":
    main()
