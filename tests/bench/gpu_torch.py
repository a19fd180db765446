"""The PyTorch side of gpu-bench. It trains the same model as a plan of scripts/plans/one_gpu, with the same dtypes,
recomputation and head, and with the fused AdamW. torch.compile compiles one block at a time, as the plans' `compile` does,
so all blocks share one compilation; it also compiles the head with its loss. The last line of the output is one JSON
object, even after a failure: then it has the reason instead of a number.

    gpu_torch.py gpt2_124m --micro 64 --seq 1024 --microbatches 8 --steps 5"""
import argparse
import json
import re
import sys
import time

OLDEST = (2, 5)  # the first version with grouped queries in its attention, and one compilation for all blocks


def end(why):
    print(json.dumps({"run": False, "why": why}))
    sys.exit(0)


try:
    import torch
    import torch._dynamo
    import torch.nn as nn
    import torch.nn.functional as F
    from torch.utils.checkpoint import checkpoint
except ModuleNotFoundError as error:
    if error.name == "torch":
        end("PyTorch is not installed")
    end("PyTorch cannot be loaded: %s" % error)
except Exception as error:  # a library that it links is missing or has another version
    end("PyTorch cannot be loaded: %s" % str(error).split("\n")[0])
if tuple(int(n) for n in re.findall(r"\d+", torch.__version__)[:2]) < OLDEST:
    end("PyTorch %s: %d.%d or newer is needed" % (torch.__version__, *OLDEST))

MODELS = {  # family, dim, layers, heads, kv heads, hidden, vocab, tied head
    "gpt2_124m": ("gpt2", 768, 12, 12, 12, 3072, 50257, True),
    "gpt2_1_5b": ("gpt2", 1600, 48, 25, 25, 6400, 50257, True),
    "llama_1b": ("llama", 2048, 16, 32, 8, 8192, 128256, True),
    "llama_8b": ("llama", 4096, 32, 32, 8, 14336, 128256, False),
    "llama_8b_bf16": ("llama", 4096, 32, 32, 8, 14336, 128256, False),
}
RECOMPUTE = {"gpt2_1_5b": "attention", "llama_8b": "full"}
STATES_BF16 = {"llama_8b_bf16"}


def rope(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, family, dim, heads, kv):
        super().__init__()
        self.heads, self.kv, self.size, self.rope = heads, kv, dim // heads, family == "llama"
        bias = family == "gpt2"
        self.q = nn.Linear(dim, dim, bias=bias)
        self.k = nn.Linear(dim, kv * self.size, bias=bias)
        self.v = nn.Linear(dim, kv * self.size, bias=bias)
        self.o = nn.Linear(dim, dim, bias=bias)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        q = self.q(x).view(b, s, self.heads, self.size).transpose(1, 2)
        k = self.k(x).view(b, s, self.kv, self.size).transpose(1, 2)
        v = self.v(x).view(b, s, self.kv, self.size).transpose(1, 2)
        if self.rope:
            q, k = rope(q, cos, sin), rope(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv != self.heads)
        return self.o(y.transpose(1, 2).reshape(b, s, -1))


class Block(nn.Module):
    def __init__(self, family, dim, heads, kv, hidden):
        super().__init__()
        norm = nn.LayerNorm if family == "gpt2" else nn.RMSNorm
        self.family = family
        self.norm1, self.norm2 = norm(dim, eps=1e-5), norm(dim, eps=1e-5)
        self.attention = Attention(family, dim, heads, kv)
        bias = family == "gpt2"
        self.up = nn.Linear(dim, hidden, bias=bias)
        self.gate = None if bias else nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=bias)

    def forward(self, x, cos, sin, recompute_attention=False):
        y = self.norm1(x)
        if recompute_attention:  # the module with its projections, like ac "selective"
            x = x + checkpoint(self.attention, y, cos, sin, use_reentrant=False)
        else:
            x = x + self.attention(y, cos, sin)
        y = self.norm2(x)
        y = F.gelu(self.up(y), approximate="tanh") if self.gate is None else F.silu(self.gate(y)) * self.up(y)
        return x + self.down(y)


class Model(nn.Module):
    def __init__(self, name, seq):
        super().__init__()
        family, dim, layers, heads, kv, hidden, vocab, tied = MODELS[name]
        self.embedding = nn.Embedding(vocab, dim)
        self.position = nn.Embedding(seq, dim) if family == "gpt2" else None
        self.blocks = nn.ModuleList(Block(family, dim, heads, kv, hidden) for _ in range(layers))
        self.norm = nn.LayerNorm(dim, eps=1e-5) if family == "gpt2" else nn.RMSNorm(dim, eps=1e-5)
        self.head = nn.Linear(dim, vocab, bias=False)
        if tied:
            self.head.weight = self.embedding.weight
        self.recompute = RECOMPUTE.get(name)
        size = dim // heads
        angle = torch.outer(torch.arange(seq).float(), 500000.0 ** (-torch.arange(0, size, 2).float() / size))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        if self.position is not None:
            x = x + self.position.weight[: tokens.shape[1]]
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        for block in self.blocks:
            if self.recompute == "full":
                x = checkpoint(block, x, cos, sin, use_reentrant=False)
            else:
                x = block(x, cos, sin, self.recompute == "attention")
        return self.loss(x, labels)

    def loss(self, x, labels):
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), labels.reshape(-1))

    def compile_parts(self):
        for name, value in (("inline_inbuilt_nn_modules", True), ("cache_size_limit", 64), ("recompile_limit", 64)):
            if hasattr(torch._dynamo.config, name):
                setattr(torch._dynamo.config, name, value)
        for block in self.blocks:
            block.compile()
        self.loss = torch.compile(self.loss)


def run(o):
    states_bf16 = o.plan in STATES_BF16
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        model = Model(o.plan, o.seq)
    if states_bf16:
        model = model.to(torch.bfloat16)
    model.compile_parts()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    vocab = MODELS[o.plan][6]
    tokens = torch.randint(vocab, (o.microbatches, o.micro, o.seq + 1), device="cuda")

    def step():
        for i in range(o.microbatches):
            with torch.autocast("cuda", torch.bfloat16, enabled=not states_bf16):
                loss = model(tokens[i, :, :-1], tokens[i, :, 1:]) / o.microbatches
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(2):  # the first one compiles
        step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(o.steps - 2):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    median = sorted(times)[len(times) // 2]
    return {
        "run": True,
        "torch": torch.__version__,
        "step_s": median,
        "tokens_per_s": o.microbatches * o.micro * o.seq / median,
        "peak_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
    }


def main():
    a = argparse.ArgumentParser()
    a.add_argument("plan", choices=sorted(MODELS))
    for name in ("micro", "seq", "microbatches", "steps"):
        a.add_argument("--" + name, type=int, required=True)
    o = a.parse_args()
    try:
        result = run(o) if torch.cuda.is_available() else {"run": False, "why": "PyTorch sees no GPU"}
    except Exception as error:  # no memory, no compiler, or a mistake in this file: every failure is reported
        text = [line for line in str(error).split("\n") if line.strip()]
        result = {"run": False, "why": "PyTorch %s: %s: %s" % (torch.__version__, type(error).__name__,
                                                                text[0] if text else "no reason")}
    print(json.dumps(result))


main()
