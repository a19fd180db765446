#!/usr/bin/env python3
"""Makes the golden tensors: a tiny Llama and a tiny GPT-2 in fp64, written with PyTorch and nothing of
Tandem. Run once with PyTorch 1.13.1 (CPU) and NumPy 1.x; the files it writes are committed.

    python3 -m venv v && v/bin/pip install torch==1.13.1 'numpy<2' && v/bin/python make_golden.py

Each file is in the safetensors format (8 bytes of header length, JSON header, raw little-endian data):
    tokens, labels          I32 [batch, seq]; a negative label is ignored
    loss                    F64 []: sum of the kept tokens' cross-entropy / (batch * seq)
    norm                    F64 []: global gradient norm before clipping
    param/NAME grad/NAME    F64: weights and their gradients under Tandem's names and dimension orders
    after/NAME              F64: weights after STEPS steps of clipped AdamW on the same batch
"""
import json
import math
import os
import struct
import sys

import numpy
import torch
import torch.nn.functional as F

STEPS, LR, BETAS, EPS, DECAY, CLIP = 3, 1e-2, (0.9, 0.95), 1e-6, 0.1, 0.5


def save(path, tensors):
    header, blob = {}, b""
    for name, tensor in tensors.items():
        array = tensor.detach().contiguous().numpy()
        data = array.tobytes()
        kind = {"float64": "F64", "int32": "I32"}[str(array.dtype)]
        header[name] = {"dtype": kind, "shape": list(array.shape),
                        "data_offsets": [len(blob), len(blob) + len(data)]}
        blob += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + blob)
    print(path, 8 + len(text) + len(blob), "bytes, loss", float(tensors["loss"]))


def batch_of(vocab, batch, seq, generator):
    tokens = torch.randint(0, vocab, (batch, seq), generator=generator)
    labels = torch.randint(0, vocab, (batch, seq), generator=generator)
    labels[torch.rand((batch, seq), generator=generator) < 0.2] = -1
    return tokens, labels


def cross_entropy(logits, labels):
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1, reduction="sum")
    return total / labels.numel()


def attend(q, k, v, causal=True):
    """q [b,s,h,e]; k, v [b,s,g,e]: query head h reads key head h // (h_total / g)."""
    repeat = q.shape[2] // k.shape[2]
    q = q.transpose(1, 2)
    k = k.repeat_interleave(repeat, dim=2).transpose(1, 2)
    v = v.repeat_interleave(repeat, dim=2).transpose(1, 2)
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -math.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2)  # [b,s,h,e]


# ---- Llama: RMSNorm, GQA, RoPE with Llama 3.1's frequency scaling, SwiGLU, untied head

LLAMA = dict(dim=16, layers=2, heads=4, kv_heads=2, head_dim=8, hidden=24, vocab=29, seq=10, batch=3,
             eps=1e-5, theta=10000.0, factor=8.0, low=1.0, high=4.0, context=100)


def llama_params(c, draw):
    g, r, e, d = c["kv_heads"], c["heads"] // c["kv_heads"], c["head_dim"], c["dim"]
    params = {"tok_embeddings.weight": draw(c["vocab"], d)}
    for i in range(c["layers"]):
        p = f"layers.{i}."
        params[p + "attention_norm.weight"] = 1 + draw(d)
        params[p + "attention.wq.weight"] = draw(d, g, r, e)
        params[p + "attention.wk.weight"] = draw(d, g, e)
        params[p + "attention.wv.weight"] = draw(d, g, e)
        params[p + "attention.wo.weight"] = draw(g, r, e, d)
        params[p + "ffn_norm.weight"] = 1 + draw(d)
        params[p + "feed_forward.w1.weight"] = draw(d, c["hidden"])
        params[p + "feed_forward.w3.weight"] = draw(d, c["hidden"])
        params[p + "feed_forward.w2.weight"] = draw(c["hidden"], d)
    params["norm.weight"] = 1 + draw(d)
    params["output.weight"] = draw(d, c["vocab"])
    return params


def rms(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def llama31_frequencies(c):
    """As in the reference release of Llama 3.1 (apply_scaling)."""
    frequencies = c["theta"] ** (-torch.arange(0, c["head_dim"], 2, dtype=torch.float64) / c["head_dim"])
    scaled = []
    for f in frequencies:
        wavelength = 2 * math.pi / f
        if wavelength < c["context"] / c["high"]:
            scaled.append(f)
        elif wavelength > c["context"] / c["low"]:
            scaled.append(f / c["factor"])
        else:
            smooth = (c["context"] / wavelength - c["low"]) / (c["high"] - c["low"])
            scaled.append((1 - smooth) * f / c["factor"] + smooth * f)
    return torch.stack(scaled)


def rotate(x, frequencies):
    """Half-split rotation of x [b,s,h,e]: rotate_half of Hugging Face's Llama."""
    angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * frequencies[None]
    angle = torch.cat([angle, angle], -1)[None, :, None]
    x1, x2 = x.chunk(2, -1)
    return x * angle.cos() + torch.cat([-x2, x1], -1) * angle.sin()


def llama(c, p, tokens, labels):
    frequencies = llama31_frequencies(c)
    x = F.embedding(tokens, p["tok_embeddings.weight"])
    for i in range(c["layers"]):
        n = f"layers.{i}."
        h = rms(x, p[n + "attention_norm.weight"], c["eps"])
        q, k, v = (F.linear(h, p[n + f"attention.{w}.weight"].flatten(1).t()) for w in ("wq", "wk", "wv"))
        split = lambda t: t.unflatten(-1, (-1, c["head_dim"]))
        a = attend(rotate(split(q), frequencies), rotate(split(k), frequencies), split(v))
        x = x + F.linear(a.flatten(2), p[n + "attention.wo.weight"].flatten(0, 2).t())
        h = rms(x, p[n + "ffn_norm.weight"], c["eps"])
        gate = F.silu(F.linear(h, p[n + "feed_forward.w1.weight"].t()))
        up = F.linear(h, p[n + "feed_forward.w3.weight"].t())
        x = x + F.linear(gate * up, p[n + "feed_forward.w2.weight"].t())
    logits = F.linear(rms(x, p["norm.weight"], c["eps"]), p["output.weight"].t())
    return cross_entropy(logits, labels)


# ---- GPT-2: LayerNorm, learned positions, biases, tanh GELU, tied head

GPT2 = dict(dim=12, layers=2, heads=3, head_dim=4, vocab=31, seq=9, batch=2, eps=1e-5)


def gpt2_params(c, draw):
    h, e, d = c["heads"], c["head_dim"], c["dim"]
    params = {"wte.weight": draw(c["vocab"], d), "wpe.weight": draw(c["seq"], d)}
    for i in range(c["layers"]):
        p = f"layers.{i}."
        params[p + "ln_1.weight"], params[p + "ln_1.bias"] = 1 + draw(d), draw(d)
        params[p + "attention.wq.weight"], params[p + "attention.wq.bias"] = draw(d, h, 1, e), draw(h, 1, e)
        params[p + "attention.wk.weight"], params[p + "attention.wk.bias"] = draw(d, h, e), draw(h, e)
        params[p + "attention.wv.weight"], params[p + "attention.wv.bias"] = draw(d, h, e), draw(h, e)
        params[p + "attention.wo.weight"], params[p + "attention.wo.bias"] = draw(h, 1, e, d), draw(d)
        params[p + "ln_2.weight"], params[p + "ln_2.bias"] = 1 + draw(d), draw(d)
        params[p + "mlp.up.weight"], params[p + "mlp.up.bias"] = draw(d, 4 * d), draw(4 * d)
        params[p + "mlp.down.weight"], params[p + "mlp.down.bias"] = draw(4 * d, d), draw(d)
    params["ln_f.weight"], params["ln_f.bias"] = 1 + draw(d), draw(d)
    return params


def gpt2(c, p, tokens, labels):
    x = F.embedding(tokens, p["wte.weight"]) + p["wpe.weight"][None, :tokens.shape[1]]
    norm = lambda x, n: F.layer_norm(x, x.shape[-1:], p[n + ".weight"], p[n + ".bias"], c["eps"])
    for i in range(c["layers"]):
        n = f"layers.{i}."
        h = norm(x, n + "ln_1")
        q, k, v = (F.linear(h, p[n + f"attention.{w}.weight"].flatten(1).t(), p[n + f"attention.{w}.bias"].flatten())
                   .unflatten(-1, (-1, c["head_dim"])) for w in ("wq", "wk", "wv"))
        a = attend(q, k, v).flatten(2)
        x = x + F.linear(a, p[n + "attention.wo.weight"].flatten(0, 2).t(), p[n + "attention.wo.bias"])
        h = F.linear(norm(x, n + "ln_2"), p[n + "mlp.up.weight"].t(), p[n + "mlp.up.bias"])
        h = F.gelu(h, approximate="tanh")
        x = x + F.linear(h, p[n + "mlp.down.weight"].t(), p[n + "mlp.down.bias"])
    return cross_entropy(F.linear(norm(x, "ln_f"), p["wte.weight"]), labels)


def make(path, config, params_of, loss_of, seed):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *dims: 0.2 * torch.randn(*dims, dtype=torch.float64, generator=generator)
    params = {name: w.requires_grad_() for name, w in params_of(config, draw).items()}
    tokens, labels = batch_of(config["vocab"], config["batch"], config["seq"], generator)
    out = {"tokens": tokens.int(), "labels": labels.int()}
    optimizer = torch.optim.AdamW(params.values(), lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
    for name, w in params.items():
        out["param/" + name] = w.detach().clone()
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(config, params, tokens, labels)
        loss.backward()
        if step == 0:
            out["loss"] = loss
            for name, w in params.items():
                out["grad/" + name] = w.grad.clone()
        norm = torch.nn.utils.clip_grad_norm_(params.values(), CLIP)
        if step == 0:
            out["norm"] = norm
        optimizer.step()
    for name, w in params.items():
        out["after/" + name] = w.detach().clone()
    save(path, out)


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(sys.argv[0]))
    torch.set_num_threads(1)
    make(os.path.join(here, "llama.safetensors"), LLAMA, llama_params, llama, 1)
    make(os.path.join(here, "gpt2.safetensors"), GPT2, gpt2_params, gpt2, 2)
