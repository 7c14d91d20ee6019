"""Small models with random weights, and their batches, for the tests of the Python package."""

import torch
from torch import nn

VOCABULARY = 64


def _tokens(rank: int, step: int, samples: int = 2, length: int = 16) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(VOCABULARY, (samples, length), generator=generator)


def _of_transformers(name: str):
    import transformers as t

    small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=VOCABULARY,
                 intermediate_size=64, max_position_embeddings=64)
    if name == "llama":
        return t.LlamaForCausalLM(t.LlamaConfig(num_key_value_heads=2, **small))
    if name == "gpt2":
        return t.GPT2LMHeadModel(t.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64,
                                              vocab_size=VOCABULARY, resid_pdrop=0.0,
                                              embd_pdrop=0.0, attn_pdrop=0.0))
    if name == "bert":
        return t.BertForMaskedLM(t.BertConfig(hidden_dropout_prob=0.0,
                                              attention_probs_dropout_prob=0.0, **small))
    if name == "mixtral":
        return t.MixtralForCausalLM(t.MixtralConfig(num_key_value_heads=2, num_local_experts=4,
                                                    num_experts_per_tok=2, **small))
    if name == "t5":
        return t.T5ForConditionalGeneration(t.T5Config(
            d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=VOCABULARY,
            dropout_rate=0.0, decoder_start_token_id=0, pad_token_id=0))
    if name == "albert":
        return t.AlbertForMaskedLM(t.AlbertConfig(embedding_size=16, hidden_dropout_prob=0.0,
                                                  attention_probs_dropout_prob=0.0, **small))
    if name == "vit":
        return t.ViTForImageClassification(t.ViTConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
            image_size=16, patch_size=4, num_labels=5, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0))
    if name == "clip":
        text = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                    intermediate_size=64)
        return t.CLIPModel(t.CLIPConfig(
            text_config=dict(vocab_size=VOCABULARY, max_position_embeddings=32, eos_token_id=2,
                             **text),
            vision_config=dict(image_size=16, patch_size=4, **text), projection_dim=16))
    raise ValueError(name)


class SharedLayers(nn.Module):
    """Layers that are called several times, in another order than they are registered in, a
    parameter of the model itself, and one that is read without calling its module."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(32, 32)
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(3))
        self.scale = nn.Parameter(torch.full((32,), 1.5))

    def forward(self, tokens, labels):
        x = self.embedding(tokens) * self.scale
        for index in (0, 2, 0, 1, 2):
            x = x + torch.tanh(self.layers[index](x)) * self.scale
        logits = nn.functional.linear(self.last(x), self.embedding.weight)
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Branches(nn.Module):
    """Branches that depend on the batch, and an output that does not reach the loss."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.left = nn.Sequential(nn.Linear(32, 48), nn.Tanh(), nn.Linear(48, 32))
        self.right = nn.Sequential(nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 32))
        self.unused = nn.Linear(32, 8)
        self.norm = nn.BatchNorm1d(32, momentum=0.0)
        self.head = nn.Linear(32, VOCABULARY)
        self.calls = 0

    def forward(self, tokens, labels):
        self.calls += 1
        x = self.embedding(tokens)
        x = x + (self.left(x) if self.calls % 3 else self.right(self.left(x)))
        other = self.unused(x)
        logits = self.head(self.norm(x.flatten(0, 1)))
        return {"loss": nn.functional.cross_entropy(logits, labels.flatten()), "other": other}


OWN = {"shared": SharedLayers, "branches": Branches}
NAMES = ["llama", "gpt2", "bert", "t5", "albert", "mixtral", "vit", "clip", "shared", "branches"]


def make_model(name: str) -> nn.Module:
    torch.manual_seed(7)
    model = OWN[name]() if name in OWN else _of_transformers(name)
    return model.train()


def make_batch(name: str, rank: int, step: int) -> dict:
    tokens = _tokens(rank, step)
    if name in OWN:
        return {"tokens": tokens, "labels": tokens.roll(-1, 1)}
    generator = torch.Generator().manual_seed(2000 * step + rank)
    if name == "vit":
        return {"pixel_values": torch.randn(2, 3, 16, 16, generator=generator),
                "labels": tokens[:, 0] % 5}
    if name == "clip":
        tokens[:, -1] = 2
        return {"input_ids": tokens, "return_loss": True,
                "pixel_values": torch.randn(2, 3, 16, 16, generator=generator)}
    return {"input_ids": tokens, "labels": tokens}


def loss_of(output) -> torch.Tensor:
    if isinstance(output, torch.Tensor):
        return output
    return output["loss"]
