-- A ring beside a tensor-parallel plan that cuts the feed-forward and the sequence, but leaves attention whole:
-- queries are gathered over tp, and only the ring cuts their tokens.
return plan {
  model = require "models.llama" { size = "tiny", layers = 1, kv_heads = 1 },
  batch = { global = 1, micro = 1, seq = 16 },
  mesh = { cp = 2, tp = 2 },
  parallel = { tp { sequence = true, plan_only = true, plan = {
    ["layers.*.feed_forward.w1"] = "colwise",
    ["layers.*.feed_forward.w3"] = "colwise",
    ["layers.*.feed_forward.w2"] = "rowwise",
  } }, cp { mode = "ring" }, fsdp2 {} },
  precision = { param = "fp32", compute = "fp32", reduce = "fp32" },
  optimizer = sgd { lr = 1e-2 },
}
