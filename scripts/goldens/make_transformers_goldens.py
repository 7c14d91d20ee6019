#!/usr/bin/env python3
"""Makes the goldens of tests/numerics/goldens with PyTorch and transformers.

    python scripts/goldens/make_transformers_goldens.py tests/numerics/goldens

Needs torch 2.11 and transformers 5 from PyPI; the tests that read the goldens need no Python.

For every family: FAMILY/ is a tiny random model as transformers saves it (config.json,
model.safetensors), FAMILY.json holds
  forward: the loss of the first global batch at the saved weights, and for every parameter's
           gradient its L2 norm and the sum of gradient[i] * cos(i) over the flattened tensor
           (which a transposed or permuted gradient does not reproduce);
  runs:    per global batch the loss and the gradient norm before clipping of 20 AdamW steps.
A run of global batch G serves every split of G into ranks x micro-batch x accumulation steps, for
step t trains on the samples t*G .. t*G+G-1 in every one of them. tokens.bin is the token file
(uint16), ds_config.json the configuration less the batch sizes.

variants/NAME is a still smaller model with config values off the beaten track, variants/NAME.json
its `forward`; one of them is saved in shards with an index.
"""

import json
import pathlib
import sys

import numpy
import torch
import transformers

SEQ_LEN = 32
STEPS = 20
VOCAB = 320
# Global batch -> micro-batch of the accumulating single process.
RUNS = {8: 8, 16: 4}
DS_CONFIG = {
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": 2e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
    },
    "gradient_clipping": 1.0,
}


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=64, n_embd=32, n_layer=2, n_head=4, initializer_range=0.15,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2LMHeadModel(config)


def llama():
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=88, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        rope_theta=50000.0, rms_norm_eps=1e-5, initializer_range=0.15, tie_word_embeddings=False,
        bos_token_id=0, eos_token_id=0)
    return transformers.LlamaForCausalLM(config)


def variants():
    small_gpt2 = dict(vocab_size=VOCAB, n_positions=32, n_embd=8, n_layer=2, n_head=2,
                      initializer_range=0.3, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                      bos_token_id=0, eos_token_id=0)
    small_llama = dict(vocab_size=VOCAB, hidden_size=8, intermediate_size=12, num_hidden_layers=2,
                       num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
                       initializer_range=0.3, bos_token_id=0, eos_token_id=0)
    gpt2_of = lambda **more: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**small_gpt2, **more))
    llama_of = lambda **more: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**small_llama, **more))
    return {
        "gpt2_untied_by_layer": lambda: gpt2_of(
            tie_word_embeddings=False, scale_attn_by_inverse_layer_idx=True, n_inner=20,
            activation_function="gelu"),
        "gpt2_unscaled_relu": lambda: gpt2_of(
            scale_attn_weights=False, activation_function="relu", layer_norm_epsilon=1e-2),
        "llama_biases_tied": lambda: llama_of(
            attention_bias=True, mlp_bias=True, tie_word_embeddings=True, head_dim=6,
            rms_norm_eps=1e-2),
        "llama_linear_rope": lambda: llama_of(
            hidden_act="gelu_pytorch_tanh",
            rope_parameters={"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}),
        "llama_llama3_rope": lambda: llama_of(
            head_dim=16,
            rope_parameters={"rope_type": "llama3", "rope_theta": 100.0, "factor": 8.0,
                             "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                             "original_max_position_embeddings": 32}),
    }


def randomise_vectors(model):
    """Biases and norm weights off their zeros and ones, so that leaving one out shows."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))


def make_tokens(count):
    """A stream with something to learn: a noisy walk over the vocabulary."""
    rng = numpy.random.default_rng(7)
    tokens = numpy.zeros(count, dtype=numpy.uint16)
    for i in range(1, count):
        tokens[i] = rng.integers(VOCAB) if rng.random() < 0.2 else (3 * int(tokens[i - 1]) + 1) % VOCAB
    return tokens


def batch_of(tokens, first, count):
    rows = [tokens[i * SEQ_LEN : (i + 1) * SEQ_LEN + 1] for i in range(first, first + count)]
    rows = torch.from_numpy(numpy.stack(rows).astype(numpy.int64))
    return rows[:, :-1], rows[:, 1:]


def loss_of(model, inputs, labels):
    # shift_labels: the labels are shifted already, as the loader hands them out.
    return model(input_ids=inputs, shift_labels=labels.contiguous(), labels=labels).loss


def stored_name(name, model):
    """The name in the saved file, where transformers calls the parameter otherwise."""
    renamed = {"gpt_neox": {"lm_head.weight": "embed_out.weight"}}
    return renamed.get(model.config.model_type, {}).get(name, name)


def stored_parts(name, gradient, model):
    """(name, part) of a gradient, as the saved file has it: transformers holds all experts of a layer in one tensor."""
    name = stored_name(name, model)
    layer, found, kind = name.partition(".mlp.experts.")
    if model.config.model_type == "mixtral":
        layer, names = layer + ".block_sparse_moe", ("w1", "w3", "w2")
        name = name.replace(".mlp.gate.", ".block_sparse_moe.gate.")
    else:
        layer, names = layer + ".mlp", ("gate_proj", "up_proj", "down_proj")
    if not found:
        return [(name, gradient)]
    parts = []
    for i, expert in enumerate(gradient):
        pieces = zip(names, expert.chunk(2)) if kind == "gate_up_proj" else [(names[2], expert)]
        parts += [(f"{layer}.experts.{i}.{piece}.weight", part) for piece, part in pieces]
    return parts


def gradients_of(model):
    gradients = {}
    for whole_name, parameter in model.named_parameters():
        for name, part in stored_parts(whole_name, parameter.grad, model):
            flat = part.double().flatten()
            waves = torch.cos(torch.arange(flat.numel(), dtype=torch.float64))
            gradients[name] = {"norm": flat.norm().item(), "probe": torch.dot(flat, waves).item()}
    model.zero_grad()
    return gradients


def forward_golden(model, tokens):
    inputs, labels = batch_of(tokens, 0, 8)
    loss = loss_of(model, inputs, labels)
    loss.backward()
    return {"batch": 8, "loss": loss.item(), "gradients": gradients_of(model)}


def training_golden(model, tokens, global_batch, micro_batch):
    params = DS_CONFIG["optimizer"]["params"]
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=params["lr"], betas=params["betas"], eps=params["eps"],
        weight_decay=params["weight_decay"])
    losses, norms = [], []
    for step in range(STEPS):
        total = 0.0
        for first in range(step * global_batch, (step + 1) * global_batch, micro_batch):
            loss = loss_of(model, *batch_of(tokens, first, micro_batch))
            share = micro_batch / global_batch
            (loss * share).backward()
            total += loss.item() * share
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), DS_CONFIG["gradient_clipping"])
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
        norms.append(norm.item())
    return {"global_batch": global_batch, "losses": losses, "grad_norms": norms}


def save(model, folder, **options):
    model.save_pretrained(folder, **options)
    (folder / "generation_config.json").unlink(missing_ok=True)


def make_variants(out, tokens):
    for name, build in variants().items():
        torch.manual_seed(1234)
        model = build()
        randomise_vectors(model)
        shards = {"max_shard_size": "12KB"} if name == "llama_llama3_rope" else {}
        save(model, out / name, **shards)
        golden = {"seq_len": SEQ_LEN, "forward": forward_golden(model, tokens)}
        (out / f"{name}.json").write_text(json.dumps(golden, indent=1) + "\n")


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    tokens = make_tokens(max(RUNS) * STEPS * SEQ_LEN + 1)
    tokens.astype("<u2").tofile(out / "tokens.bin")
    (out / "ds_config.json").write_text(json.dumps(DS_CONFIG, indent=2) + "\n")
    for family, build in {"gpt2": gpt2, "llama": llama}.items():
        torch.manual_seed(1234)
        model = build()
        randomise_vectors(model)
        save(model, out / family)
        golden = {
            "torch": torch.__version__, "transformers": transformers.__version__,
            "seq_len": SEQ_LEN, "token_dtype": "uint16", "forward": forward_golden(model, tokens)}
        golden["runs"] = []
        for global_batch, micro_batch in RUNS.items():
            model = transformers.AutoModelForCausalLM.from_pretrained(
                out / family, dtype=torch.float32, attn_implementation="eager")
            model.train()
            golden["runs"].append(training_golden(model, tokens, global_batch, micro_batch))
        (out / f"{family}.json").write_text(json.dumps(golden, indent=1) + "\n")
    make_variants(out / "variants", tokens)


if __name__ == "__main__":
    main()
