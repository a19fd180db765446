-- A tensor-parallel plan that replaces the model's own table. Attention is split by inputs and its output gathered; the MLP
-- is a column and row pair. Embedding and head, which the model's own table would split, are whole.
return plan {
  model = require "models.phi" { size = "3-tiny", layers = 1 },
  cluster = require "clusters.local_cpu" {},
  batch = { global = 2, micro = 2, seq = 16 },
  mesh = { tp = 2 },
  parallel = { tp { plan_only = true, plan = {
    ["layers.*.attention.wq"] = "rowwise_rep",
    ["layers.*.attention.wk"] = "rowwise_rep",
    ["layers.*.attention.wv"] = "rowwise_rep",
    ["layers.*.attention.wo"] = "colwise_rep",
    ["layers.*.mlp.gate"] = "colwise",
    ["layers.*.mlp.up"] = "colwise",
    ["layers.*.mlp.down"] = "rowwise",
  } } },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = sgd { lr = 1e-2 },
}
