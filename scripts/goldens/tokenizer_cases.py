"""The tokenizers that the goldens and the comparison are made with: one for each way in which published models
are set up, trained on the project's own text. Needs tokenizers 0.23.3 and sentencepiece."""

import io
import json
import pathlib
import random

import sentencepiece
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors,
                        trainers)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK_V3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
               r"\s*[\r\n]+|\s+(?!\S)|\s+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
GLM = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
       r"\s+(?!\S)|\s+")

WORDS = """Größe naïve café Ünïcode straße привет мир Москва γειά σου κόσμε שלום עולם مرحبا بالعالم नमस्ते दुनिया สวัสดีชาวโลก
你好，世界！ 日本語のテキスト。 カタカナ ﾊﾝｶｸ 한국어 문장 Tiếng Việt 😀👍🏽👩‍👩‍👧‍👦🇩🇪 ﬁne ①②③ Ｆｕｌｌｗｉｄｔｈ ½ ² ™ … — “quoted” don't I'll we've It's"""


def training_lines():
    """The project's own documentation, and words of other scripts."""
    lines = WORDS.splitlines() * 4
    for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "runtime/README.md", "runtime/GLOSSARY.md"):
        lines += (ROOT / name).read_text(encoding="utf-8").splitlines()
    lines += (ROOT / "runtime/base/status.h").read_text(encoding="utf-8").splitlines()
    return lines


def bpe(pre, size=420, normalizer=None, special=(), byte_level=True, **kwargs):
    """A tokenizer with a trained BPE model."""
    made = Tokenizer(models.BPE(**kwargs))
    made.pre_tokenizer = pre
    if normalizer:
        made.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if byte_level else [],
        **{key: kwargs[key] for key in ("end_of_word_suffix", "continuing_subword_prefix") if key in kwargs})
    made.train_from_iterator(training_lines(), trainer)
    return made


def byte_level(**kwargs):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False, **kwargs)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def gpt2():
    made = bpe(pre_tokenizers.ByteLevel(add_prefix_space=False), special=["<|endoftext|>"])
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    made.decoder = decoders.ByteLevel()
    return made


def llama3():
    made = bpe(pre_tokenizers.Sequence([split(LLAMA3), byte_level()]), ignore_merges=True)
    made.add_special_tokens([AddedToken(each, normalized=False, special=True)
                             for each in ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>")])
    begin = made.token_to_id("<|begin_of_text|>")
    made.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|>:1 $B:1",
                                      special_tokens=[("<|begin_of_text|>", begin)])])
    made.decoder = decoders.ByteLevel()
    return made


def qwen2():
    made = bpe(pre_tokenizers.Sequence([split(QWEN2), byte_level()]), normalizer=normalizers.NFC())
    made.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    made.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False)])
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    made.decoder = decoders.ByteLevel()
    return made


def o200k():
    made = bpe(pre_tokenizers.Sequence([split(O200K), byte_level()]))
    made.add_special_tokens(["<|start|>", "<|end|>", "<|message|>", "<|channel|>"])
    made.decoder = decoders.ByteLevel()
    return made


def glm():
    made = bpe(pre_tokenizers.Sequence([split(GLM), byte_level()]))
    made.add_special_tokens([AddedToken("[gMASK]", special=True), AddedToken("<sop>", special=True)])
    made.decoder = decoders.ByteLevel()
    return made


def deepseek():
    made = bpe(pre_tokenizers.Sequence([split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK_V3),
                                        byte_level()]))
    made.add_special_tokens(["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"])
    made.add_tokens([AddedToken("<｜User｜>", normalized=True)])
    made.decoder = decoders.ByteLevel()
    return made


def deepseek_coder():
    made = bpe(pre_tokenizers.Sequence([
        split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split("[一-龥ࠀ-一가-퟿]+"),
        pre_tokenizers.Digits(individual_digits=True), byte_level()]))
    made.decoder = decoders.ByteLevel()
    return made


def falcon():
    made = bpe(pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation(behavior="contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False), split("[0-9][0-9][0-9]")]))
    made.add_special_tokens([">>TITLE<<", "<|endoftext|>"])
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    return made


def bloom():
    made = bpe(pre_tokenizers.Sequence([split(BLOOM), byte_level()]), special=["<unk>", "<s>", "</s>", "<pad>"])
    made.decoder = decoders.ByteLevel()
    made.post_processor = processors.ByteLevel(add_prefix_space=True, trim_offsets=False)
    return made


def starcoder():
    made = bpe(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False)]))
    made.add_special_tokens(["<fim_prefix>", "<fim_middle>", "<fim_suffix>"])
    made.decoder = decoders.ByteLevel()
    return made


def neox():
    made = bpe(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizer=normalizers.NFC(), special=["<|endoftext|>"])
    made.add_tokens([AddedToken(" " * count, normalized=True) for count in (4, 3, 2)])
    made.post_processor = processors.ByteLevel(trim_offsets=True)
    made.decoder = decoders.ByteLevel()
    return made


def roberta():
    made = bpe(pre_tokenizers.ByteLevel(add_prefix_space=True), special=["<s>", "<pad>", "</s>", "<unk>"])
    made.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True)])
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=True)
    made.decoder = decoders.ByteLevel()
    return made


def clip():
    made = bpe(pre_tokenizers.Sequence([split(CLIP, "removed", True), byte_level()]), end_of_word_suffix="</w>",
               unk_token="<|endoftext|>", normalizer=normalizers.Sequence([
                   normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]),
               special=["<|startoftext|>", "<|endoftext|>"])
    made.post_processor = processors.RobertaProcessing(
        ("<|endoftext|>", made.token_to_id("<|endoftext|>")), ("<|startoftext|>", made.token_to_id("<|startoftext|>")),
        trim_offsets=False, add_prefix_space=False)
    made.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Replace("</w>", " ")])
    return made


def openai_gpt():
    made = bpe(pre_tokenizers.BertPreTokenizer(), normalizer=normalizers.BertNormalizer(lowercase=True),
               byte_level=False, end_of_word_suffix="</w>", unk_token="<unk>", special=["<unk>"])
    made.decoder = decoders.BPEDecoder(suffix="</w>")
    return made


def with_bytes(made):
    """SentencePiece's vocabulary of a BPE model: <unk>, <s>, </s>, and a token for each byte in front."""
    read = json.loads(made.to_str())
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    known = sorted(read["model"]["vocab"], key=read["model"]["vocab"].get)
    tokens += [each for each in known if each not in tokens]
    read["model"]["vocab"] = {token: index for index, token in enumerate(tokens)}
    read["model"] |= {"byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>"}
    read["added_tokens"] = []
    made = Tokenizer.from_str(json.dumps(read))
    made.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in ("<unk>", "<s>", "</s>")])
    return made


def sentencepiece_bpe():
    made = with_bytes(bpe(pre_tokenizers.Metaspace(), size=300, byte_level=False, unk_token="<unk>", special=["<unk>"]))
    made.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1",
                                                        special_tokens=[("<s>", 1)])
    return made


def llama2():
    made = sentencepiece_bpe()
    made.pre_tokenizer = None
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                      decoders.Strip(" ", 1, 0)])
    made.add_tokens([AddedToken("<|user|>", normalized=False, rstrip=True)])
    return made


def mistral():
    made = sentencepiece_bpe()
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                      decoders.Strip(" ", 1, 0)])
    made.add_special_tokens(["[INST]", "[/INST]"])
    return made


def gemma():
    made = sentencepiece_bpe()
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    made.add_special_tokens(["<start_of_turn>", "<end_of_turn>"])
    made.add_tokens([AddedToken("\n" * count, normalized=False) for count in (2, 3)])
    made.add_tokens([AddedToken("▁" * count, normalized=False) for count in (2, 3)])
    return made


def bert():
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(training_lines(), trainers.WordPieceTrainer(
        vocab_size=500, show_progress=False, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    made.decoder = decoders.WordPiece()
    return made


def bert_cased():
    made = bert()
    made.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.enable_truncation(24)
    return made


# What a small charsmap replaces: a part of NFKC, and some rules of more than one character.
RULES = ["1F642\t3A 29", "FB01\t66 69", "2460\t31", "2461\t32", "FF26\t46", "FF55\t75", "FF4C\t6C", "BD\t31 2F 32", "2122\t54 4D",
         "2026\t2E 2E 2E", "A0\t20", "3000\t20", "9\t20", "A\t20", "D\t20", "65 301\tE9", "61 308\tE4", "200B\t", "AD\t", "FF1F\t3F",
         "FF8A\t30CF", "FF8B\t30D2", "FEFF\t", "FFFD\t20", "C4\t41 308", "110B 1161\tC544"]


def train_sentencepiece(**kwargs):
    """A trained model, as bytes."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(training_lines()), model_writer=model,
                                             minloglevel=2, hard_vocab_limit=False, num_threads=1, **kwargs)
    return model.getvalue()


def charsmap_of(model):
    """The charsmap's bytes: field 2 of field 3 of the message."""
    def fields(message):
        at = 0
        def varint():
            nonlocal at
            value = shift = 0
            while True:
                byte = message[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value
        while at < len(message):
            tag = varint()
            if tag & 7 == 0:
                yield tag >> 3, varint()
            elif tag & 7 == 2:
                size = varint()
                yield tag >> 3, message[at:at + size]
                at += size
            else:
                size = 8 if tag & 7 == 1 else 4
                yield tag >> 3, message[at:at + size]
                at += size
    spec = next(value for field, value in fields(model) if field == 3)
    return next(value for field, value in fields(spec) if field == 2)


def small_charsmap(tmp=pathlib.Path("/tmp/tokenizer_rules.tsv")):
    tmp.write_text("\n".join(RULES) + "\n", encoding="utf-8")
    return charsmap_of(train_sentencepiece(model_type="unigram", vocab_size=200, normalization_rule_tsv=str(tmp)))


def unigram(pre, normalizer, special, **kwargs):
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizer
    made.pre_tokenizer = pre
    made.train_from_iterator(training_lines(), trainers.UnigramTrainer(
        vocab_size=500, show_progress=False, special_tokens=special, unk_token="<unk>", **kwargs))
    made.decoder = decoders.Metaspace()
    return made


def t5():
    made = unigram(pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
                   normalizers.Precompiled(small_charsmap()), ["<pad>", "</s>", "<unk>"])
    made.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>",
                                                        special_tokens=[("</s>", 1)])
    made.add_special_tokens(["<extra_id_0>", "<extra_id_1>"])
    return made


def albert():
    made = unigram(pre_tokenizers.Metaspace(), normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
        normalizers.Lowercase(), normalizers.Precompiled(small_charsmap()), normalizers.Replace(Regex(" {2,}"), " ")]),
        ["<pad>", "<unk>", "[CLS]", "[SEP]"])
    made.add_special_tokens([AddedToken("[MASK]", lstrip=True, special=True)])
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return made


def marian():
    made = unigram(pre_tokenizers.Metaspace(prepend_scheme="always"), normalizers.Sequence(
        [normalizers.Nmt(), normalizers.NFKC(), normalizers.Strip(True, True)]), ["<unk>", "</s>"])
    return made


def word_level():
    made = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    made.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Strip(True, False)])
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.train_from_iterator(training_lines(), trainers.WordLevelTrainer(vocab_size=300, show_progress=False,
                                                                         special_tokens=["[UNK]"]))
    made.add_tokens([AddedToken("whole", single_word=True), AddedToken("Wort", single_word=True, lstrip=True)])
    return made


def delimiters():
    made = bpe(pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit("|"), split(r"\d+", "merged_with_next"),
                                        split("[A-Z]", "merged_with_previous"), pre_tokenizers.Punctuation("removed")]),
               byte_level=False, continuing_subword_prefix="##", unk_token="[UNK]", special=["[UNK]"])
    made.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return made


def ctc():
    made = Tokenizer(models.WordLevel({"<pad>": 0, "|": 1, "A": 2, "b": 3, "e": 4, "l": 5, "o": 6, "[UNK]": 7}, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.decoder = decoders.CTC(pad_token="<pad>", word_delimiter_token="|")
    made.pre_tokenizer = split(".", "isolated")
    return made


CONFIGS = [gpt2, llama3, qwen2, o200k, glm, deepseek, deepseek_coder, falcon, bloom, starcoder, neox, roberta, clip, openai_gpt,
           llama2, mistral, gemma, bert, bert_cased, t5, albert, marian, word_level, delimiters, ctc]

TEXTS = [
    "", " ", "  ", "\n", "Hello", " Hello world", "Hello  world  ", "the quick brown fox jumps over the lazy dog.",
    "It's don't I'LL We've you'd THEY'RE", "12345 6 789.01 1,000,000 ٣٤٥ ½ ²", "naïve café Größe ÅNGSTRÖM e\u0301 a\u0308o\u0308",
    "你好，世界！ 日本語のテキスト。カタカナ ﾊﾝｶｸ", "한국어 문장 \u1112\u1161\u11ab\u1100\u1173\u11af", "שלום עולם مرحبا بالعالم 123",
    "नमस्ते दुनिया สวัสดีชาวโลก", "😀👍🏽👩‍👩‍👧‍👦🇩🇪 🙂!", "ﬁne ①② Ｆｕｌｌ ½ ™ … — “quoted”",
    "int main(int argc, char** argv) {\n\treturn argc > 1 ? 0 : 1;  // ok\n}\n", "def f(x):\n    return x ** 2\n\n\nprint(f(3))\r\n",
    "a\tb\t\tc \r\n\r\n d\u00a0e\u2003f\u3000g\u200bh\u0085i", "<|endoftext|>Hi<|im_start|>user\nHi<|im_end|>", "<s>Hi</s> <mask> [MASK]  [SEP] x",
    "<|user|>  Hello <|user|>\n[INST] Hi [/INST]", "whole wholesale a whole Wort Wortes  Wort", "▁under ▁▁score ▁▁▁", "| a|b|c Ab|CD 12ab34",
    "https://example.org/a?b=c&d=e#f user@host.org", "``quotes'' and ''more``", "İstanbul IĞDIR ǅ ẞ ΑΣ", "\u0000\u0001\u007f\u0080 x\ufffdy\ufeffz",
    "Abel <pad>||AAbb|bell", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "e\u0301\u0323\u0316 q\u0307\u0323 \u0344 \u212b \u1e9b\u0323", "tool <tool_call>{\"name\": 1}</tool_call>\n\n\n\n", ">>TITLE<< x <extra_id_0>.",
    "     leading and trailing     ", "x" * 70 + " " + "1" * 20, "MiXeD CaSe wOrDs HTTPServer2Go iPhone", "a.b,c!d?e;f:g…h。i、j",
]

PIECES = ["a", "b", "the", " ", "  ", "\n", "\r\n", "\t", "1", "23", "456", ".", ",", "'s", "'", "\"", "-", "_", "(", ")", "{", "}", "é", "e\u0301",
          "ß", "Σ", "İ", "я", "你", "好", "日", "ア", "ｱ", "ﾞ", "한", "\u1112\u1161\u11ab", "ש", "م", "ि", "न", "ก", "ำ", "😀", "👍🏽", "\u200d", "\ufe0f",
          "🇩", "½", "①", "ﬁ", "\u00a0", "\u3000", "\u2028", "\u0085", "\u200b", "\u00ad", "\ufffd", "\u0000", "\u001b", "▁", "▁▁", "<s>", "</s>",
          "<unk>", "<mask>", "[MASK]", "[CLS]", "<|endoftext|>", "<|user|>", "Ġ", "Ċ", "##", "</w>", "<0x41>", "whole", "Wort", "|", "``", "''",
          "\u0323", "\u0301", "\u0344", "\U0001d15e", "\u212b", "\uac00", "\u11a8", "\uFF21", "Ǆ", "ŉ", "ſ", "K", "\U00020000", "\u0e33", "Hello", "World"]


def fuzzed(count, seed, longest=12):
    """Texts of random pieces."""
    source = random.Random(seed)
    return ["".join(source.choice(PIECES) for _ in range(source.randint(1, longest))) for _ in range(count)]
