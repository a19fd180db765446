-- Context parallelism beside tp: two ranks exchange tokens for the heads that tp has cut, and a ring connects two such groups.
-- The cut of the heads over cp.1 is inside of the cut over tp, as mesh order requires.
return plan {
  model = require "models.llama" { size = "tiny", layers = 1, kv_heads = 4 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 2, micro = 1, seq = 16 },
  mesh = { cp = 4, tp = 2 },
  parallel = { tp {}, cp { mode = "ring", all_to_all = 2 }, ddp {} },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = sgd { lr = 1e-2 },
}
