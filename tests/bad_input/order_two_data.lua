-- Two data passes are refused, so the list in the hint has one.
return plan {
  model = require "models.llama" { size = "tiny" },
  batch = { global = 16, micro = 2, seq = 64 },
  mesh = { dp_shard = 2 },
  parallel = { ddp {}, fsdp2 {}, tp {}, tp {} },
}
