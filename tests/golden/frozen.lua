-- The embedding, the first block and most of the second block's attention are not trained. Frozen parameters are in
-- units of their own, without gradients and moments. The backward pass ends in the second block.
return plan {
  model = require "models.llama" { size = "tiny", layers = 2 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 2, micro = 1, seq = 16 },
  mesh = { dp_shard = 2 },
  parallel = {
    freeze { modules = { "tok_embeddings", "layers.0", "layers.1.attention" }, except = { "layers.1.attention.wo" } },
    fsdp2 {},
  },
  precision = { param = "fp32", compute = "bf16", reduce = "fp32" },
  optimizer = adamw { lr = 1e-3 },
}
