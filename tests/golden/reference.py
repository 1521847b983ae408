#!/usr/bin/env python3
"""Makes the golden cases of this folder:  reference.py OUT_DIR   (needs PyTorch; nothing else here does)

A small GPT-2 in float64, its gradients by autograd, its updates written out by hand. What `tenon step` makes of the
same weights and tokens in fp32 must agree; compare.c says how closely.

A case is a safetensors file. Metadata "case": JSON with "ini" (the configuration) and "steps". Tensors: init.NAME
(fp32), tokens and targets (int32 [steps, global_batch, T], -1: does not count), and what must come out: loss and
gnorm (fp64 [steps], gnorm before clipping), logits (fp32, step 0, first micro-batch), grad.NAME (step 0, before
clipping), after.NAME (after the last update).
"""
import json
import math
import os
import struct
import sys

import numpy
import torch


class Case:
    """Model, batch and optimizer of one case. uncounted: how many of the first targets of every first sequence are -1."""

    def __init__(self, name, seed, layers, heads, width, vocab, block, length=None, bias=True, gelu="erf", batch=2,
                 accumulate=1, steps=2, uncounted=0, optimizer="adamw", lr=1e-2, clip=1.0, decay=0.1, betas=(0.9, 0.95)):
        self.__dict__.update(locals())
        self.length = length or block

    extra = 0                                                # of the last forward: what training adds to the sum of losses

    def parameters(self, rng):
        """Names and fp32 values, in nanoGPT's order; every one random, so that none hides a mistake in another."""
        shapes = {"transformer.wte.weight": (self.vocab, self.width), "transformer.wpe.weight": (self.block, self.width)}
        norms = set()

        def norm(name):
            norms.add(name + ".weight")
            shapes[name + ".weight"] = (self.width,)
            if self.bias:
                shapes[name + ".bias"] = (self.width,)

        def linear(name, inputs, outputs):
            shapes[name + ".weight"] = (outputs, inputs)
            if self.bias:
                shapes[name + ".bias"] = (outputs,)

        for layer in range(self.layers):
            unit = f"transformer.h.{layer}."
            norm(unit + "ln_1")
            linear(unit + "attn.c_attn", self.width, 3 * self.width)
            linear(unit + "attn.c_proj", self.width, self.width)
            norm(unit + "ln_2")
            linear(unit + "mlp.c_fc", self.width, 4 * self.width)
            linear(unit + "mlp.c_proj", 4 * self.width, self.width)
        norm("transformer.ln_f")
        return {name: (0.1 * torch.randn(shape, generator=rng) + (name in norms)).float() for name, shape in shapes.items()}

    def forward(self, p, tokens):
        """Logits [batch, length, vocab]."""
        batch, length = tokens.shape
        size = self.width // self.heads

        def norm(x, name):
            x = x - x.mean(-1, keepdim=True)
            x = x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5)
            return x * p[name + ".weight"] + p.get(name + ".bias", 0)

        def linear(x, name):
            return x @ p[name + ".weight"].T + p.get(name + ".bias", 0)

        def gelu(x):
            if self.gelu == "tanh":
                return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
            return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))

        future = torch.ones(length, length).triu(1).bool()
        x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][:length]
        for layer in range(self.layers):
            unit = f"transformer.h.{layer}."
            qkv = linear(norm(x, unit + "ln_1"), unit + "attn.c_attn")
            q, k, v = qkv.reshape(batch, length, 3, self.heads, size).permute(2, 0, 3, 1, 4)
            scores = torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(size)
            weights = torch.softmax(scores.masked_fill(future, -math.inf), -1)
            mixed = torch.einsum("bhij,bhjd->bihd", weights, v).reshape(batch, length, self.width)
            x = x + linear(mixed, unit + "attn.c_proj")
            x = x + linear(gelu(linear(norm(x, unit + "ln_2"), unit + "mlp.c_fc")), unit + "mlp.c_proj")
        return norm(x, "transformer.ln_f") @ p["transformer.wte.weight"].T

    def loss(self, logits, targets):
        """Sum over the targets that count."""
        counted = targets >= 0
        picked = logits.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
        return ((torch.logsumexp(logits, -1) - picked) * counted).sum()

    def update(self, p, slots, step):
        norm = math.sqrt(sum(float((v.grad ** 2).sum()) for v in p.values()))
        scale = min(1.0, self.clip / (norm + 1e-6)) if self.clip else 1.0
        for name, v in p.items():
            g = v.grad * scale
            if self.optimizer == "sgd":
                v.data -= self.lr * g
                continue
            m, s = slots.setdefault(name, [torch.zeros_like(g), torch.zeros_like(g)])
            m += (1 - self.betas[0]) * (g - m)
            s += (1 - self.betas[1]) * (g * g - s)
            if v.dim() >= 2:
                v.data *= 1 - self.lr * self.decay
            v.data -= self.lr * (m / (1 - self.betas[0] ** step)) / (torch.sqrt(s / (1 - self.betas[1] ** step)) + 1e-8)
        return norm

    def run(self):
        rng = torch.Generator().manual_seed(self.seed)
        init = self.parameters(rng)
        p = {name: v.double().requires_grad_() for name, v in init.items()}
        windows = torch.randint(self.vocab, (self.steps, self.accumulate * self.batch, self.length + 1), generator=rng)
        tokens, targets = windows[..., :-1].clone(), windows[..., 1:].clone()
        targets[:, 0, :self.uncounted] = -1
        out = {"init." + name: v.numpy() for name, v in init.items()}
        out.update(tokens=tokens.int().numpy(), targets=targets.int().numpy())
        losses, norms, slots = [], [], {}
        for step in range(self.steps):
            counted = int((targets[step] >= 0).sum())
            total = 0.0
            for v in p.values():
                v.grad = torch.zeros_like(v)                 # and so it stays where nobody visits an expert
            for first in range(0, self.accumulate * self.batch, self.batch):
                logits = self.forward(p, tokens[step, first:first + self.batch])
                loss = (self.loss(logits, targets[step, first:first + self.batch]) + self.extra) / counted
                loss.backward()
                total += loss.item()
                if step == 0 and first == 0:
                    out["logits"] = logits.detach().float().numpy()
            if step == 0:
                out.update({"grad." + name: v.grad.float().numpy() for name, v in p.items()})
            losses.append(total)
            norms.append(self.update(p, slots, step + 1))
        out.update({"after." + name: v.detach().float().numpy() for name, v in p.items()})
        out.update(loss=numpy.array(losses), gnorm=numpy.array(norms))
        return out

    def ini(self):
        ini = {"model.arch": "gpt2", "model.n_layer": self.layers, "model.n_head": self.heads, "model.n_embd": self.width,
               "model.vocab_size": self.vocab, "model.block_size": self.block, "model.dropout": 0.0, "model.bias": self.bias,
               "model.gelu": self.gelu, "train.seq_len": self.length, "train.global_batch": self.batch * self.accumulate,
               "train.micro_batch": self.batch, "train.grad_clip": self.clip, "optimizer.name": self.optimizer,
               "optimizer.lr": self.lr, "schedule.name": "constant"}
        if self.optimizer == "adamw":
            ini.update({"optimizer.beta1": self.betas[0], "optimizer.beta2": self.betas[1], "optimizer.eps": 1e-8,
                        "optimizer.weight_decay": self.decay})
        return ini


class Llama(Case):
    """keys: heads of the keys. scaling: of the rotary positions, as the keys of the configuration say it."""

    def __init__(self, name, seed, layers, heads, keys, width, inner, vocab, block, tied=False, scaling=None, theta=10000.0, **more):
        super().__init__(name, seed, layers, heads, width, vocab, block, **more)
        self.keys, self.inner, self.tied, self.theta = keys, inner, tied, theta
        self.scaling = scaling or {}

    def parameters(self, rng):
        size = self.width // self.heads
        shapes = {"model.embed_tokens.weight": (self.vocab, self.width)}
        for layer in range(self.layers):
            unit = f"model.layers.{layer}."
            shapes[unit + "input_layernorm.weight"] = (self.width,)
            for part, rows in (("q", self.heads * size), ("k", self.keys * size), ("v", self.keys * size)):
                shapes[unit + f"self_attn.{part}_proj.weight"] = (rows, self.width)
            shapes[unit + "self_attn.o_proj.weight"] = (self.width, self.heads * size)
            shapes[unit + "post_attention_layernorm.weight"] = (self.width,)
            shapes.update(self.mlp_shapes(unit))
        shapes["model.norm.weight"] = (self.width,)
        if not self.tied:
            shapes["lm_head.weight"] = (self.vocab, self.width)
        return {name: (0.1 * torch.randn(shape, generator=rng) + (len(shape) == 1)).float() for name, shape in shapes.items()}

    def mlp_shapes(self, unit):
        return {unit + "mlp.gate_proj.weight": (self.inner, self.width), unit + "mlp.up_proj.weight": (self.inner, self.width),
                unit + "mlp.down_proj.weight": (self.width, self.inner)}

    def mlp(self, p, unit, y):
        gate, up = (y @ p[unit + f"mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        return (gate * torch.sigmoid(gate) * up) @ p[unit + "mlp.down_proj.weight"].T

    def turns(self):
        """Radians from one position to the next, of each pair of a head."""
        size = self.width // self.heads
        turn = torch.tensor([self.theta ** (-2 * i / size) for i in range(size // 2)], dtype=torch.float64)
        kind = self.scaling.get("rope_scaling", "none")
        if kind == "none":
            return turn
        stretched = turn / self.scaling["rope_factor"]
        if kind == "linear":
            return stretched
        length, low, high = (self.scaling["rope_" + key] for key in ("original_context", "low_freq_factor", "high_freq_factor"))
        wave = 2 * math.pi / turn
        between = (length / wave - low) / (high - low)
        mixed = (1 - between) * stretched + between * turn
        return torch.where(wave < length / high, turn, torch.where(wave > length / low, stretched, mixed))

    def forward(self, p, tokens):
        batch, length = tokens.shape
        size = self.width // self.heads
        angle = torch.outer(torch.arange(length, dtype=torch.float64), self.turns())
        cosine, sine = torch.cos(angle), torch.sin(angle)

        def norm(x, name):
            return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * p[name + ".weight"]

        def heads(x, name, count):
            return (x @ p[name + ".weight"].T).reshape(batch, length, count, size).transpose(1, 2)

        def turned(x):
            a, b = x[..., :size // 2], x[..., size // 2:]
            return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1)

        future = torch.ones(length, length).triu(1).bool()
        x = p["model.embed_tokens.weight"][tokens]
        for layer in range(self.layers):
            unit = f"model.layers.{layer}."
            y = norm(x, unit + "input_layernorm")
            q = turned(heads(y, unit + "self_attn.q_proj", self.heads))
            k = turned(heads(y, unit + "self_attn.k_proj", self.keys)).repeat_interleave(self.heads // self.keys, 1)
            v = heads(y, unit + "self_attn.v_proj", self.keys).repeat_interleave(self.heads // self.keys, 1)
            weights = torch.softmax((torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(size)).masked_fill(future, -math.inf), -1)
            mixed = torch.einsum("bhij,bhjd->bihd", weights, v).reshape(batch, length, self.width)
            x = x + mixed @ p[unit + "self_attn.o_proj.weight"].T
            y = norm(x, unit + "post_attention_layernorm")
            x = x + self.mlp(p, unit, y)
        return norm(x, "model.norm") @ p["model.embed_tokens.weight" if self.tied else "lm_head.weight"].T

    def ini(self):
        ini = super().ini()
        for key in ("model.bias", "model.gelu"):
            del ini[key]
        ini.update({"model.arch": "llama", "model.n_kv_head": self.keys, "model.n_inner": self.inner, "model.tie_embeddings": self.tied,
                    "model.rope_theta": self.theta})
        ini.update({"model." + key: value for key, value in self.scaling.items()})
        return ini


class Mixtral(Llama):
    """experts: how many there are; visits: how many see a token; balance: weight of what is added for visits that are uneven."""

    def __init__(self, name, experts, visits, balance=0.0, **more):
        super().__init__(name, **more)
        self.experts, self.visits, self.balance = experts, visits, balance

    def forward(self, p, tokens):
        self.extra = 0
        return super().forward(p, tokens)

    def mlp_shapes(self, unit):
        shapes = {unit + "block_sparse_moe.gate.weight": (self.experts, self.width)}
        for expert in range(self.experts):
            for part, shape in (("w1", (self.inner, self.width)), ("w2", (self.width, self.inner)), ("w3", (self.inner, self.width))):
                shapes[unit + f"block_sparse_moe.experts.{expert}.{part}.weight"] = shape
        return shapes

    def parameters(self, rng):
        p = super().parameters(rng)
        return {name: 5 * v if name.endswith("moe.gate.weight") else v for name, v in p.items()}    # far from ties

    def mlp(self, p, unit, y):
        """One token after the other."""
        result = torch.zeros_like(y)
        visited, shares = torch.zeros(y.shape[0], self.experts), torch.zeros(y.shape[0], self.experts, dtype=torch.float64)
        for at in [(b, t) for b in range(y.shape[0]) for t in range(y.shape[1])]:
            logits = p[unit + "block_sparse_moe.gate.weight"] @ y[at]
            best = torch.argsort(logits, descending=True)[:self.visits]
            visited[at[0], best] += 1
            shares[at[0]] = shares[at[0]] + torch.softmax(logits, 0)
            gates = torch.exp(logits[best]) / torch.exp(logits[best]).sum()
            for gate, expert in zip(gates, best.tolist()):
                w1, w2, w3 = (p[unit + f"block_sparse_moe.experts.{expert}.{part}.weight"] for part in ("w1", "w2", "w3"))
                a = w1 @ y[at]
                result[at] = result[at] + gate * (w2 @ (a * torch.sigmoid(a) * (w3 @ y[at])))
        length = y.shape[1]
        self.extra = self.extra + self.balance * length * self.experts * (visited / (self.visits * length) * shares / length).sum()
        return result

    def ini(self):
        return {**super().ini(), "model.arch": "mixtral", "model.n_expert": self.experts, "model.top_k": self.visits,
                **({"model.aux_loss": self.balance} if self.balance else {})}


def write(path, tensors, metadata):
    kinds = {"float32": "F32", "float64": "F64", "int32": "I32"}
    header, at = {"__metadata__": metadata}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": kinds[str(array.dtype)], "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(numpy.ascontiguousarray(array).tobytes())


CASES = [
    Case("bias", seed=11, layers=2, heads=2, width=16, vocab=29, block=8, batch=2, accumulate=2, steps=3, uncounted=5),
    Case("nobias", seed=12, layers=2, heads=4, width=16, vocab=17, block=12, bias=False, batch=3),
    Case("odd", seed=13, layers=2, heads=3, width=15, vocab=23, block=11, length=9, gelu="tanh", batch=3),
    Case("sgd", seed=14, layers=2, heads=2, width=16, vocab=19, block=10, batch=4, steps=3, optimizer="sgd", lr=0.5),
    Llama("llama_gqa", seed=15, layers=2, heads=4, keys=2, width=32, inner=20, vocab=29, block=12, batch=2, accumulate=2, uncounted=5,
          scaling={"rope_scaling": "llama3", "rope_factor": 4.0, "rope_low_freq_factor": 1.0, "rope_high_freq_factor": 4.0,
                   "rope_original_context": 64}),
    Llama("llama_mqa", seed=16, layers=2, heads=3, keys=1, width=18, inner=25, vocab=23, block=11, length=9, tied=True, batch=3, theta=500.0,
          scaling={"rope_scaling": "linear", "rope_factor": 2.0}),
    # ranks do not divide the experts; in the second case some are not visited
    Mixtral("mixtral", seed=18, layers=2, heads=4, keys=2, width=16, inner=12, vocab=23, block=9, batch=2, accumulate=2, uncounted=4,
            experts=5, visits=2),
    Mixtral("mixtral_even", seed=20, layers=2, heads=2, keys=1, width=12, inner=8, vocab=17, block=8, batch=2, accumulate=2, optimizer="sgd", lr=0.2,
            experts=3, visits=2, balance=0.5),
    Mixtral("mixtral_one", seed=19, layers=2, heads=2, keys=2, width=12, inner=8, vocab=17, block=7, batch=3, tied=True, optimizer="sgd",
            lr=0.5, experts=11, visits=1),
    Llama("llama_mha", seed=17, layers=3, heads=3, keys=3, width=12, inner=17, vocab=19, block=10, batch=3, steps=3, optimizer="sgd", lr=0.5),
]

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    for case in CASES:
        result = case.run()
        write(os.path.join(sys.argv[1], case.name + ".safetensors"), result,
              {"format": "pt", "case": json.dumps({"ini": case.ini(), "steps": case.steps})})
        print(case.name, "loss", *result["loss"], "gnorm", *result["gnorm"])
