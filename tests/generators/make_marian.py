"""Makes `marian.tar.xz`: a small model in both of Marian's formats.

    pip install torch==2.13.0 transformers==5.23.0 sentencepiece==0.2.3
    python tests/generators/make_marian.py

It holds

    hf/       a folder as Hugging Face has it, weights in all of their files
    npz/      a model as Marian writes it, trained with Marian's own positions
    expected.json  what `MarianMTModel` and `MarianTokenizer` make of hf/, and
                   `MarianMTModel`, computing as Marian does, of npz/

The weights are multiples of 1/256, which compress well. Widths are distinct
primes, but for d_model, which is two heads of 11.
"""

import io
import itertools
import json
import math
import pathlib
import shutil
import tarfile
import tempfile

import numpy as np
import sentencepiece
import torch
import yaml
from transformers import MarianConfig, MarianMTModel, MarianTokenizer

HEADS, KEY_DIM, FFN_DIM, LAYERS = 2, 11, 13, 3
D_MODEL = HEADS * KEY_DIM
LANGUAGES = {"source_lang": "en", "target_lang": "de"}
TEXTS = [
    "the small dog sees the big cat.",
    ">>deu<< the young bird likes a mouse",
    ">>nld<<a cat hears, the dog hears!",
    ">>xyz<< an unknown language",
    "the mouse >>deu<< finds the bird",
    "der große Hund: ß ☃☃ 漢字",
    "  two   spaces　and ﬁne ligatures ",
    ">> no tag",
    "bird",
]
TARGETS = [
    "der kleine Hund sieht die große Katze.",
    "der junge Vogel mag eine Maus",
    "een kat hört, Hund",
    "☃ cat",
]
# As in a model of OPUS-MT, but for the sizes.
SETTINGS = {
    "type": "transformer",
    "dim-emb": D_MODEL,
    "enc-depth": LAYERS,
    "dec-depth": LAYERS,
    **dict.fromkeys(["tied-embeddings", "tied-embeddings-src"], False),
    "tied-embeddings-all": True,
    "transformer-aan-activation": "swish",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-dim-ffn": FFN_DIM,
    "transformer-ffn-activation": "swish",
    "transformer-ffn-depth": 2,
    "transformer-guided-alignment-layer": "last",
    "transformer-heads": HEADS,
    "transformer-no-projection": False,
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-preprocess": "",
    "transformer-tied-layers": [],
    "transformer-train-position-embeddings": False,
    "version": "v1.7.6",
}


def sentences():
    """Some hundred pairs, of which the vocabularies are learnt."""
    adjectives = {"small": "kleine", "big": "große", "young": "junge"}
    nouns = {"dog": "Hund", "cat": "Katze", "mouse": "Maus", "bird": "Vogel"}
    verbs = {"sees": "sieht", "likes": "mag"}
    verbs |= {"hears": "hört", "finds": "findet"}
    for (a, b), (c, d), (e, f) in itertools.product(
        *(words.items() for words in (adjectives, nouns, verbs))
    ):
        yield f"the {a} {c} {e} the bird.", f"der {b} {d} {f} die Katze."
        yield f"a {c}, {e} a cat!", f"ein {d}, {f} ein Vogel!"


SOURCES, TRANSLATIONS = zip(*sentences(), strict=True)


def train_sentencepiece(lines, size, rule, path):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        hard_vocab_limit=False,
        character_coverage=1.0,
        normalization_rule_name=rule,
        minloglevel=3,
    )
    path.write_bytes(model.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [pieces.IdToPiece(i) for i in range(3, pieces.GetPieceSize())]


@torch.no_grad()
def new_model(vocab_size):
    """Every weight random, norms and biases too: zeros would hide mistakes."""
    both = {"layers": LAYERS, "attention_heads": HEADS, "ffn_dim": FFN_DIM}
    sides = ("encoder", "decoder")
    config = MarianConfig(
        vocab_size=vocab_size,
        d_model=D_MODEL,
        **{f"{side}_{name}": n for name, n in both.items() for side in sides},
        activation_function="swish",
        scale_embedding=True,
        max_position_embeddings=64,
        **dict.fromkeys(["eos_token_id", "forced_eos_token_id"], 0),
        pad_token_id=vocab_size - 1,
        decoder_start_token_id=vocab_size - 1,
        bad_words_ids=[[vocab_size - 1]],
        num_beams=4,
        dropout=0.0,
    )
    model, draw = MarianMTModel(config), np.random.default_rng(7)
    for name, parameter in model.named_parameters():
        if "embed_positions" not in name:
            mean = 1.0 if "layer_norm.weight" in name else 0.0
            drawn = draw.normal(mean, 0.25, parameter.shape)
            parameter.copy_(torch.tensor(drawn))
    bias = draw.normal(0.0, 0.5, vocab_size)
    bias[-1] = 0.0
    model.final_logits_bias.copy_(torch.tensor(bias)[None])
    return model


@torch.no_grad()
def as_marian(model):
    """Puts Marian's own arithmetic in place of that of Hugging Face."""
    # `sinusoidalPositionEmbeddings`, in src/graph/node_initializers.cpp.
    half = D_MODEL // 2
    rates = [math.exp(i * -math.log(10_000) / (half - 1)) for i in range(half)]
    angles = np.arange(64)[:, None] * rates
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    for side in (model.model.encoder, model.model.decoder):
        side.embed_positions.weight.copy_(torch.tensor(table))
    # Marian has no padding that could take a share of a probability.
    model.final_logits_bias[:, -1] = -1e4
    # `layerNorm`, in src/models/transformer.h.
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-6
    return model


def train(model, tokenizer, steps=600):
    """Some seconds, so that translations differ and end."""
    both = [list(side) for side in (SOURCES, TRANSLATIONS)]
    how = dict(return_tensors="pt", padding=True)
    batch = tokenizer(both[0], text_target=both[1], **how)
    batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for _ in range(steps):
        # As converted models have it: the row that decoders start from.
        model.model.shared.weight.data[-1] = 0.0
        loss = model(**batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        learnt = [x for x in model.parameters() if x.requires_grad]
        for tensor in (*learnt, model.final_logits_bias):
            tensor.copy_(torch.round(tensor * 256) / 256)
        model.model.shared.weight[-1] = 0.0
    return model.eval()


def marian_weights(model):
    """The weights by Marian's names, which knows no padding."""
    state = {
        name.removeprefix("model."): tensor.numpy()
        for name, tensor in model.state_dict().items()
    }
    found = {
        "Wemb": state["shared.weight"][:-1],
        "decoder_ff_logit_out_b": state["final_logits_bias"][:, :-1],
    }

    def linear(to, letter, name):
        found[f"{to}_W{letter}"] = state[f"{name}.weight"].T
        found[f"{to}_b{letter}"] = state[f"{name}.bias"][None]

    def norm(to, name):
        found[f"{to}_ln_scale"] = state[f"{name}.weight"][None]
        found[f"{to}_ln_bias"] = state[f"{name}.bias"][None]

    of_self, others = ("self", "self_attn"), ("context", "encoder_attn")
    kinds = {"encoder": [of_self], "decoder": [of_self, others]}
    for side, i in itertools.product(kinds, range(LAYERS)):
        to, name = f"{side}_l{i + 1}", f"{side}.layers.{i}"
        for kind, of in kinds[side]:
            for letter in ("q", "k", "v", "out"):
                place = f"{name}.{of}.{letter}_proj"
                linear(f"{to}_{kind}", letter[0], place)
            norm(f"{to}_{kind}_Wo", f"{name}.{of}_layer_norm")
        linear(f"{to}_ffn", "1", f"{name}.fc1")
        linear(f"{to}_ffn", "2", f"{name}.fc2")
        norm(f"{to}_ffn_ffn", f"{name}.final_layer_norm")
    return {name: np.ascontiguousarray(a) for name, a in found.items()}


def write_npz(model, vocab, folder):
    settings = {**SETTINGS, "dim-vocabs": [len(vocab) - 1] * 2}
    text = yaml.safe_dump(settings).encode() + b"\0"
    yml = {"special:model.yml": np.frombuffer(text, "int8")}
    np.savez(folder / "opus.npz", **marian_weights(model), **yml)
    lines = [
        f"{json.dumps(piece, ensure_ascii=False)}: {i}\n"
        for piece, i in vocab.items()
        if piece != "<pad>"
    ]
    (folder / "opus.vocab.yml").write_text("".join(lines), "utf-8")
    decoder = {
        "relative-paths": True,
        "models": ["opus.npz"],
        "vocabs": ["opus.vocab.yml", "opus.vocab.yml"],
        "beam-size": 6,
        "normalize": 1,
    }
    (folder / "decoder.yml").write_text(yaml.safe_dump(decoder))


def write_hugging_face(model, folder):
    model.save_pretrained(folder)
    state = model.state_dict()
    torch.save(state, folder / "pytorch_model.bin")
    # As PyTorch below 1.6 wrote it, and so most of OPUS-MT.
    old = dict(_use_new_zipfile_serialization=False)
    torch.save(state, folder / "legacy.bin", **old)


@torch.no_grad()
def answers(model, tokenizer, batch, target):
    """Logits of the first text and its target, and translations of all."""
    start = torch.tensor([[model.config.decoder_start_token_id, *target[:-1]]])
    output = model(
        input_ids=batch.input_ids[:1],
        attention_mask=batch.attention_mask[:1],
        decoder_input_ids=start,
    )
    found = {"logits": output.logits[0].tolist()}
    for name, beams in (("greedy", 1), ("beam", 4)):
        result = model.generate(
            **batch,
            num_beams=beams,
            max_new_tokens=40,
            # Sums of log-probabilities, as ours with alpha 0.
            length_penalty=0.0,
            output_scores=True,
            return_dict_in_generate=True,
        )
        rows, pad = result.sequences, len(tokenizer) - 1
        found[name] = {
            "ids": [[i for i in row.tolist()[1:] if i != pad] for row in rows],
            "texts": tokenizer.batch_decode(rows, skip_special_tokens=True),
        }
        if beams > 1:
            found[name]["scores"] = result.sequences_scores.tolist()
    return found


def main(root, path):
    hf, npz = root / "hf", root / "npz"
    for folder in (hf, npz):
        folder.mkdir()
    spm, rules = ("source.spm", "target.spm"), ("nmt_nfkc", "identity")
    pieces = train_sentencepiece(SOURCES, 89, rules[0], hf / spm[0])
    pieces += train_sentencepiece(TRANSLATIONS, 113, rules[1], hf / spm[1])
    for name in spm:
        shutil.copy(hf / name, npz / name)
    names = ["</s>", "<unk>", ">>deu<<", ">>nld<<", *sorted(set(pieces))]
    vocab = {piece: i for i, piece in enumerate([*names, "<pad>"])}
    (hf / "vocab.json").write_text(json.dumps(vocab, indent=2), "utf-8")
    files = (str(hf / name) for name in (*spm, "vocab.json"))
    tokenizer = MarianTokenizer(*files, **LANGUAGES)
    model = train(new_model(len(vocab)), tokenizer)
    write_hugging_face(model, hf)
    marian = train(as_marian(new_model(len(vocab))), tokenizer)
    write_npz(marian, vocab, npz)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    targets = tokenizer(text_target=TARGETS).input_ids
    rows = zip(batch.input_ids, batch.attention_mask, strict=True)
    result = {
        "texts": TEXTS,
        "source_ids": [row[mask.bool()].tolist() for row, mask in rows],
        "targets": TARGETS,
        "target_ids": targets,
        **answers(model, tokenizer, batch, targets[0]),
        "marian": answers(marian, tokenizer, batch, targets[0]),
    }
    (root / "expected.json").write_text(json.dumps(result))
    with tarfile.open(path, "w:xz") as file:
        for member in sorted(root.rglob("*")):
            if member.is_file():
                file.add(member, member.relative_to(root))


if __name__ == "__main__":
    importing = pathlib.Path(__file__).parents[1] / "importing"
    with tempfile.TemporaryDirectory() as temporary:
        main(pathlib.Path(temporary), importing / "marian.tar.xz")
