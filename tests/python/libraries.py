"""What the scripts of Hugging Face's libraries share: the engine behind `import deepspeed`, a tiny
model with its tokenizer and data, and the log lines that are compared.

A script is run on every rank as  SCRIPT ENGINE STAGE [OPTION ...]  with ENGINE dsrun or deepspeed.
"""

import atexit
import json
import os
import sys

import torch

torch.set_num_threads(1)
ENGINE, STAGE, *OPTIONS = sys.argv[1:]
STAGE = int(STAGE)

if ENGINE == "dsrun":
    import dsrun.compat
    dsrun.compat.install()


def allow_hosts_without_gpu():
    """Accelerate takes each rank of a DeepSpeed job on such a host for the only one, and
    Trainer refuses bf16. dsrun.compat corrects the ranks."""
    import transformers.training_args
    from accelerate.state import DistributedType, PartialState
    if ENGINE == "deepspeed":
        atexit.register(torch.distributed.destroy_process_group)  # else the end may abort
        PartialState._prepare_backend = (
            lambda self, *args, **kwargs: ("gloo", DistributedType.MULTI_CPU))
    transformers.training_args.is_torch_bf16_gpu_available = lambda: True


allow_hosts_without_gpu()

TEXT = ("the quick brown fox jumps over the lazy dog while seven small birds sing in an old tree "
        "and nobody knows why they never stop before the sun goes down behind the green hills").split()


def ds_config(**sections):
    """A ds_config as in transformers' documentation, whose values the trainers fill in."""
    zero = {"stage": STAGE, "reduce_bucket_size": "auto"}
    if STAGE == 3:
        zero |= {"stage3_prefetch_bucket_size": "auto",
                 "stage3_param_persistence_threshold": "auto",
                 "stage3_gather_16bit_weights_on_model_save": True}
    return {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
            "train_batch_size": "auto", "gradient_clipping": "auto", "zero_optimization": zero,
            "zero_force_ds_cpu_optimizer": False, **sections}


def make_tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(
        [" ".join(TEXT)], trainers.WordLevelTrainer(special_tokens=["<pad>", "<unk>", "<eos>"]))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>",
                                   unk_token="<unk>", eos_token="<eos>")


def sentence(seed, length=12):
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randint(len(TEXT), (length,), generator=generator)
    return " ".join(TEXT[index] for index in chosen)


def make_llama(seed=11):
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        pad_token_id=0, eos_token_id=2, bos_token_id=None))


SKIPPED = ("runtime", "per_second", "step_time", "entropy", "flos", "num_tokens", "epoch")


def log(record):
    """Prints the numbers of a record of a trainer's log, on rank 0."""
    chosen = {name: value for name, value in record.items()
              if isinstance(value, (int, float)) and not any(word in name for word in SKIPPED)}
    if os.environ["RANK"] == "0":
        print("LOG", json.dumps(chosen), flush=True)


def log_history(trainer):
    for record in trainer.state.log_history:
        log(record)
