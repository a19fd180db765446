-- Context parallelism: ranks exchange tokens for heads around attention. Weights are sharded over dp_shard and cp.
return plan {
  model = require "models.llama" { size = "tiny", layers = 1 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 2, micro = 1, seq = 16 },
  mesh = { dp_shard = 2, cp = 2 },
  parallel = { cp { mode = "all_to_all" }, fsdp2 {} },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = sgd { lr = 1e-2 },
}
