"""PEFT's LoRA on a frozen Llama in a loop of deepspeed.initialize: one that saves the adapters at the end."""

import argparse
import json
import os

import deepspeed
import torch
from peft import LoraConfig, TaskType, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, get_linear_schedule_with_warmup

STEPS = 6


def make_model():
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64))
    return get_peft_model(model, LoraConfig(task_type=TaskType.CAUSAL_LM, r=4, lora_alpha=16, lora_dropout=0.0,
                                            target_modules=["q_proj", "k_proj", "v_proj", "o_proj"]))


def save_adapters(engine, folder):
    trained = {name: parameter for name, parameter in engine.module.named_parameters()
               if parameter.requires_grad}
    with deepspeed.zero.GatheredParameters(list(trained.values())):
        state = {name: parameter.detach().cpu().clone() for name, parameter in trained.items()}
    if torch.distributed.get_rank() == 0:
        torch.save(state, os.path.join(folder, "adapters.pt"))
        print("LOG", json.dumps({"adapters": len(state),
                                 "weights": sum(v.double().abs().sum().item() for v in state.values())}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()
    deepspeed.init_distributed()
    model = make_model()
    model.print_trainable_parameters()
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=1, num_training_steps=STEPS)
    engine, optimizer, _, scheduler = deepspeed.initialize(args=args, model=model, optimizer=optimizer,
                                                           lr_scheduler=scheduler)
    generator = torch.Generator().manual_seed(7 + engine.local_rank)
    engine.train()
    for step in range(STEPS * engine.gradient_accumulation_steps()):
        tokens = torch.randint(64, (2, 12), generator=generator).to(engine.device)
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        if engine.local_rank == 0:
            print("LOG", json.dumps({"step": step, "loss": loss.item(), "lr": scheduler.get_last_lr()[0],
                                     "steps": engine.global_steps}), flush=True)
    save_adapters(engine, args.output_dir)


if __name__ == "__main__":
    main()
