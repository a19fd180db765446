-- An image's patches become a quarter as many tokens, in front of the text. The encoder is frozen, and sharded like the rest.
-- The backward pass ends in the merger.
return plan {
  model = require "models.qwen2_vl" { size = "tiny", layers = 1 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 2, micro = 1, seq = 4 },
  mesh = { dp_shard = 2 },
  parallel = { freeze { modules = { "encoder" } }, fsdp2 {} },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = sgd { lr = 1e-2 },
}
