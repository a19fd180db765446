#!/usr/bin/env python3
"""Times a training step of the U-Net on one core, in Tandem and in PyTorch, and prints a Markdown table.

    tests/bench/unet_torch.py [BUILD]

Both train the same network (scripts/models/unet.lua) on the same shapes, in fp32, with AdamW and a clipped norm, on one
thread. They take turns, so that other work on the machine slows down both. A time is the CPU time of a step. It is the
difference between a longer and a shorter run, so that start and end do not count. Without PyTorch the script prints "not
run"."""
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError as error:
    print("not run: %s" % error)
    sys.exit(0)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PLAN = "scripts/plans/unet_wave.lua"
ROUNDS = 3
# width of the first level, depth, channels, rows, columns, samples; steps of the longer run
SHAPES = [
    (8, 2, 2, 16, 32, 2, 201),
    (16, 3, 8, 64, 128, 2, 21),
    (32, 3, 16, 64, 128, 2, 11),
    (64, 4, 67, 64, 128, 1, 5),
]


class Layer(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.conv = nn.Conv2d(n_in, n_out, 3)
        self.norm = nn.GroupNorm(4, n_out)

    def forward(self, x):
        x = F.pad(F.pad(x, (1, 1, 0, 0), mode="circular"), (0, 0, 1, 1), mode="reflect")
        return F.silu(self.norm(self.conv(x)))


def stage(n_in, n_out):
    return nn.Sequential(Layer(n_in, n_out), Layer(n_out, n_out))


class UNet(nn.Module):
    def __init__(self, width, depth, channels):
        super().__init__()
        wide = [width * 2 ** i for i in range(depth + 1)]
        self.down = nn.ModuleList(stage(wide[i - 1] if i else channels, wide[i]) for i in range(depth))
        self.middle = stage(wide[depth - 1], wide[depth])
        levels = range(depth - 1, -1, -1)
        self.grow = nn.ModuleList(nn.ConvTranspose2d(wide[i + 1], wide[i], 2, 2) for i in levels)
        self.up = nn.ModuleList(stage(2 * wide[i], wide[i]) for i in levels)
        self.head = nn.Conv2d(width, channels, 1)

    def forward(self, x):
        beside = []
        for down in self.down:
            beside.append(down(x))
            x = F.max_pool2d(beside[-1], 2)
        x = self.middle(x)
        for grow, up in zip(self.grow, self.up):
            x = up(torch.cat((grow(x), beside.pop()), dim=1))
        return self.head(x)


class Torch:
    def __init__(self, shape):
        width, depth, channels, rows, columns, samples, _ = shape
        torch.manual_seed(1)
        self.model = UNet(width, depth, channels)
        self.n = sum(p.numel() for p in self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3, foreach=True)
        self.x, self.y = (torch.randn(samples, channels, rows, columns) for _ in range(2))
        latitude = (torch.arange(rows) + 0.5) / rows * torch.pi - torch.pi / 2
        self.weight = (torch.cos(latitude) / torch.cos(latitude).mean()).view(1, 1, rows, 1)

    def step(self):
        self.optimizer.zero_grad()
        loss = (self.weight * (self.model(self.x) - self.y) ** 2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def seconds(self, n):
        begin = time.process_time()
        for _ in range(n):
            self.step()
        return (time.process_time() - begin) / n


class Tandem:
    def __init__(self, shape, command, store):
        width, depth, channels, rows, columns, samples, self.many = shape
        values = {"mesh.dp_shard": 1, "model.width": width, "model.depth": depth, "model.channels": channels,
                  "model.targets": channels, "batch.channels": channels, "batch.height": rows,
                  "batch.width": columns, "batch.global": samples, "batch.micro": samples,
                  "optimizer.clip_norm": 1}
        self.argv = [command, "run", PLAN, "--backend", "loopback", "--db", store, "-q", "--json"]
        for key, value in values.items():
            self.argv += ["--set", "%s=%s" % (key, value)]
        checked = subprocess.run([command, "check", PLAN, "--json", *self.argv[9:]], cwd=ROOT, check=True,
                                 capture_output=True, text=True).stdout
        self.n = json.loads(checked)["model"]["params"]
        self.cpu(1)  # predicts the plan and stores that

    def cpu(self, steps):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*self.argv, "--steps", str(steps)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    def seconds(self):
        return (self.cpu(self.many) - self.cpu(1)) / (self.many - 1)


def main():
    command = os.path.join(os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release"), "tandem")
    torch.set_num_threads(1)
    print("One thread each, PyTorch %s; the least of %d rounds of CPU time a step.\n" % (torch.__version__, ROUNDS))
    print("| U-Net | field, samples | parameters | Tandem, ms | PyTorch, ms | Tandem / PyTorch |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        for shape in SHAPES:
            theirs, ours = Torch(shape), Tandem(shape, command, os.path.join(work, "bench.db"))
            if theirs.n != ours.n:
                sys.exit("the networks differ: %d parameters in PyTorch, %d in Tandem" % (theirs.n, ours.n))
            theirs.seconds(2)
            least = [float("inf"), float("inf")]
            for _ in range(ROUNDS):
                least[0] = min(least[0], ours.seconds())
                least[1] = min(least[1], theirs.seconds(shape[6] - 1))
            print("| width %d, depth %d | %d x %d x %d, %d | %s | %.2f | %.2f | %.2f |" %
                  (*shape[:6], format(ours.n, ","), 1e3 * least[0], 1e3 * least[1], least[0] / least[1]), flush=True)


main()
