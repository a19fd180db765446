return plan {
  model = require "models.llama" "tiny",
  cluster = require "clusters.gpu" { gpu = "H100" },
  batch = { global = 8, micro = 1, seq = 64 }, mesh = { dp_shard = 8 }, parallel = { fsdp2 {} },
  runtime = { name = "mine", attention = "flash2",
    ops = { linear = { reads_none = true }, silu_grad = { reads_none = true } } },
}
