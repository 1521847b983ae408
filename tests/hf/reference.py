#!/usr/bin/env python3
"""Models as Hugging Face's library saves them, small and random, and what that library computes with them.

    reference.py make FOLDER     the vectors of this folder: a folder for each model, and expected.safetensors in it
    reference.py check FOLDER MODEL [TOLERANCE]
                                 opens FOLDER, which tenon exported, with the library and compares its logits with
                                 expected.safetensors of the MODEL that it came from

Needs torch, transformers and safetensors; the tests need none of them. `make` gives the same bytes again with the
same versions of the libraries; with others the numbers differ, and are as good."""
import json
import os
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

LENGTH = 16


def gpt2(**more):
    sizes = dict(vocab_size=43, n_positions=24, n_embd=12, n_layer=2, n_head=3, bos_token_id=0, eos_token_id=0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**{**sizes, **more}))


def llama(**more):
    sizes = dict(vocab_size=43, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, max_position_embeddings=24, bos_token_id=0, eos_token_id=0, pad_token_id=None)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**sizes, **more}))


def mixtral(**more):
    sizes = dict(vocab_size=43, hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 num_local_experts=3, num_experts_per_tok=2, max_position_embeddings=24, bos_token_id=0, eos_token_id=0, pad_token_id=None)
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**{**sizes, **more}))


MODELS = {
    # name: (model, how it is saved)
    "gpt2": (gpt2, {}, dict()),
    "gpt2-wide": (gpt2, dict(n_inner=20, activation_function="gelu", layer_norm_epsilon=1e-3, tie_word_embeddings=False), dict(shard="6KB")),
    "gpt2-bare": (gpt2, dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0), dict(bare=True, dtype=torch.bfloat16)),
    "gpt2-half": (gpt2, {}, dict(dtype=torch.float16)),
}
LLAMAS = {
    "llama": (llama, {}, dict()),
    "llama-tied": (llama, dict(num_key_value_heads=4, tie_word_embeddings=True, rms_norm_eps=1e-5, rope_theta=500.0), dict(dtype=torch.bfloat16)),
    "llama-long": (llama, dict(num_key_value_heads=1, rope_parameters=dict(
        rope_type="llama3", rope_theta=100.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=12)), dict(shard="6KB")),
}


MIXTRALS = {"mixtral": (mixtral, {}, dict())}


def randomize(model):
    """Initial weights make nearly equal logits, biases 0 and norms 1: nothing would show if they were mixed up."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=generator)
            p.copy_(1 + 0.2 * noise if p.dim() == 1 and name.endswith("weight") else 0.3 * noise)


def tokens():
    generator = torch.Generator().manual_seed(11)
    return torch.randint(0, 43, (1, LENGTH), generator=generator)


def greedy(model, start, steps):
    ids = start
    with torch.no_grad():
        for _ in range(steps):
            ids = torch.cat([ids, model(ids).logits[:, -1].argmax(-1, keepdim=True)], 1)
    return ids


def logits(model):
    with torch.no_grad():
        return model(tokens()).logits[0].float()


def save(model, folder, bare=False, dtype=None, shard=None):
    """Returns what the library reads back, in fp32: the weights are then rounded, and what it computes from
    its configuration is not."""
    stored = model.base_model if bare else model
    stored = stored.to(dtype) if dtype else stored
    stored.save_pretrained(folder, **(dict(max_shard_size=shard) if shard else {}))
    return type(model).from_pretrained(folder, dtype=torch.float32).eval()


def make(folder, models):
    for name, (build, config, how) in models.items():
        model = build(**config).eval()
        randomize(model)
        model.tie_weights()
        at = os.path.join(folder, name)
        model = save(model, at, **how)
        for extra in ("generation_config.json",):
            if os.path.exists(os.path.join(at, extra)):
                os.remove(os.path.join(at, extra))
        start = tokens()[:, :4]
        save_file({"tokens": tokens()[0].to(torch.int32), "logits": logits(model), "start": start[0].to(torch.int32),
                   "greedy": greedy(model, start, LENGTH - 4)[0].to(torch.int32)}, os.path.join(at, "expected.safetensors"))
        with open(os.path.join(at, "greedy.txt"), "w") as f:
            f.write(" ".join(str(i) for i in greedy(model, start, LENGTH - 4)[0].tolist()) + "\n")
        print(name, sum(os.path.getsize(os.path.join(at, f)) for f in os.listdir(at)), "bytes")


def check(folder, origin, tolerance=2e-5):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        if info.get(kind):
            sys.exit(f"{folder}: {kind}: {info[kind]}")
    expected = load_file(os.path.join(origin, "expected.safetensors"))["logits"]
    off = (logits(model.eval()) - expected).abs().max().item()
    print(f"{folder}: {type(model).__name__}, largest difference of logits {off:.3g}")
    if not off <= float(tolerance):
        sys.exit(1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make(sys.argv[2], {**MODELS, **LLAMAS, **MIXTRALS})
    elif sys.argv[1:2] == ["check"]:
        check(*sys.argv[2:])
    else:
        sys.exit(__doc__)
