-- A small Llama that 4 processes of this machine train on the bytes of a text which Debian
-- installs: tandem run scripts/plans/tiny_text.lua -n 4
return plan {
  model = require "models.llama" { size = "tiny", layers = 2 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 16, micro = 4, seq = 64 },
  mesh = { dp_shard = 2, tp = 2 },
  parallel = { tp { sequence = true }, fsdp2 {} },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = adamw { lr = 3e-3, warmup_steps = 10, total_steps = 200 },
  steps = 200,
  data = "/usr/share/common-licenses/GPL-3",
}
