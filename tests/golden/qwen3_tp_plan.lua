-- A tensor-parallel plan by path patterns, in addition to the model's own. Norms are split by sequence though the rest is
-- whole, the head's output is whole, and gradients of head norms are partial on tp.
return plan {
  model = require "models.qwen" { size = "3-tiny", layers = 1 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 2, micro = 2, seq = 16 },
  mesh = { tp = 2 },
  parallel = { tp { plan = {
    ["layers.*.ffn_norm"] = "sequence_parallel",
    ["layers.*.feed_forward.w2"] = "rowwise_rep",
    tok_embeddings = "colwise",
    output = "colwise_rep",
  } } },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = sgd { lr = 1e-2 },
}
