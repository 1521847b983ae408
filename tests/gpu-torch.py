#!/usr/bin/env python3
"""The same training step in PyTorch, for tests/gpu-check: GPT-2 in bf16, compiled, fused AdamW, whole updates.

    gpu-torch.py 124M|1558M BATCH        one line: tokens/s, ms, MFU (of 989 TFLOP/s), memory
"""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

SIZES = {"124M": (12, 12, 768), "1558M": (48, 25, 1600)}
T, V, STEPS = 1024, 50304, 10


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
        self.qkv, self.proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.heads, c // self.heads).transpose(1, 2) for p in self.qkv(self.norm1(x)).split(c, 2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT2(nn.Module):
    def __init__(self, layers, heads, width):
        super().__init__()
        self.tokens, self.places = nn.Embedding(V, width), nn.Embedding(T, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x, y):
        h = self.tokens(x) + self.places.weight
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(F.linear(self.norm(h), self.tokens.weight).flatten(0, 1), y.flatten())


def main():
    name, batch = sys.argv[1], int(sys.argv[2])
    layers, heads, width = SIZES[name]
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = GPT2(layers, heads, width).cuda()
    step = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    x, y = (torch.randint(V, (batch, T), device="cuda") for _ in range(2))
    times = []
    for i in range(STEPS + 4):
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = step(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    seconds = sorted(times[4:])[STEPS // 2]
    n = sum(p.numel() for p in model.parameters()) - model.places.weight.numel()
    flops = (6 * n + 6 * layers * width * T) * batch * T
    print(f"{name} B {batch}, torch {torch.__version__} compiled, bf16: {batch * T / seconds:.0f} tokens/s, "
          f"{seconds * 1e3:.2f} ms, {flops / seconds / 1e12:.0f} TFLOP/s ({flops / seconds / 989.4e12:.3f} of 989), "
          f"{torch.cuda.max_memory_allocated() / 1e6:.0f} MB")


main()
