local m = require "models.llama" "tiny"
return plan { model = m, cluster = require "clusters.local_cpu" {}, batch = { global = 4, micro = 1, seq = 64 },
  mesh = { dp_shard = 1 }, parallel = {}, precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  [""] = { batch = { global = 8 } } }
